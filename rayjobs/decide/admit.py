"""Which waiting runs start now and where, and what each of the others waits for.

Runs are taken in queue order; one that finds no room keeps the place it wants from those behind it. A run goes to a
cluster only if it fits there now by Muster's own ledger and the head can bear another driver.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cluster_groups.decide.choose import Decision, choose_member, match_cluster
from cluster_groups.decide.quota import beyond_quota
from cluster_groups.model.cluster import ClusterKind, ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.health import HealthStatus
from kernel.clock import instant
from kernel.reasons import Owner, Reason
from kernel.resources import Resources, total
from rayjobs.decide.order import order_queue
from rayjobs.model.job import RunMode
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.snapshot import AdmissionSnapshot, Held, Load, WaitingRun

ATTACHED_DRIVERS = 10
OWN_CLUSTER = "a cluster of its own"
HEAD_OWN_GIB = 1.5
"""What a head needs for itself: GCS, dashboard and its modules, agents, monitor (0.85 GB measured, with margin)."""
DRIVER_GIB = 0.25
"""A driver with its supervisor actor (58 MB of its own) and watcher, measured 0.12-0.2 GB for `ray.init()`."""
LOST_TIMEOUT_S = 900
"""How long a placed run waits for a vanished cluster, where no policy says otherwise (policy.md §1)."""
MAX_STARTING = 4
"""Drivers of one head on their way at once: more only make each other slower (about two starts a second)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """`cluster_id` is None when the run's own cluster has to be made first."""

    run: WaitingRun
    cluster_id: str | None
    cluster: str | None
    decision: Mapping[str, Any]
    lost_timeout_s: int = LOST_TIMEOUT_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    run: WaitingRun
    reason: Reason
    decision: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    run: WaitingRun
    end: End


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionPlan:
    starts: tuple[Start, ...] = ()
    waits: tuple[Wait, ...] = ()
    give_ups: tuple[GiveUp, ...] = ()
    next_look_s: float = math.inf
    """How soon time alone changes something: the end of a run's longest wait."""


@dataclass(slots=True)
class _Room:
    """What is left on each cluster and in each resource group as the round goes on."""

    snapshot: AdmissionSnapshot
    load: dict[str, Load]
    quota_used: dict[str, Resources]
    kept: dict[str, str] = field(default_factory=dict)
    """Cluster or resource group → id of the run ahead for which its room is kept."""

    def lacks(self, view: ClusterView, demand: Demand) -> Reason | None:
        """Why the run must wait for this cluster; None when it fits now."""
        load = self.load.get(view.id, Load())
        limit = driver_limit(view)
        if load.drivers >= limit:
            return Reason(code="HEAD_BUSY", owner=Owner.PLATFORM, params={"drivers": load.drivers, "limit": limit})
        if load.starting >= MAX_STARTING:
            return Reason(
                code="HEAD_BUSY", owner=Owner.PLATFORM, params={"drivers": load.starting, "limit": MAX_STARTING}
            )
        beyond = demand.resources.beyond((view.total - load.used).capped(view.available))
        if beyond:
            short = {name: {"wanted": wanted, "free": max(free, 0)} for name, (wanted, free) in beyond.items()}
            return Reason(code="QUEUED_BEHIND", owner=Owner.PLATFORM, params={"cluster": view.name, "short": short})
        if view.id in self.kept:
            return Reason(code="QUEUED_BEHIND", params={"cluster": view.name, "run": self.kept[view.id]})
        return None

    def take(self, view: ClusterView, demand: Demand) -> None:
        load = self.load.get(view.id, Load())
        self.load[view.id] = Load(
            drivers=load.drivers + 1,
            starting=load.starting + 1,
            held=(*load.held, Held(run=None, amount=demand.resources)),
        )


def plan_admission(snapshot: AdmissionSnapshot, now: datetime) -> AdmissionPlan:
    room = _Room(
        snapshot=snapshot,
        load=dict(snapshot.load),
        quota_used={name: total(one.amount for one in held) for name, held in snapshot.quota_held.items()},
    )
    by_name = {view.name: view for view in snapshot.clusters.values()}
    starts: list[Start] = []
    waits: list[Wait] = []
    give_ups: list[GiveUp] = []
    for run in order_queue(snapshot.runs):
        outcome = _too_old(run, snapshot, now) or _place(run, room, by_name, now)
        if isinstance(outcome, Start):
            starts.append(outcome)
        elif isinstance(outcome, Wait):
            waits.append(outcome)
        else:
            give_ups.append(outcome)
    deadlines = [deadline for wait in waits if (deadline := _deadline(wait.run, snapshot))]
    return AdmissionPlan(
        starts=tuple(starts),
        waits=tuple(waits),
        give_ups=tuple(give_ups),
        next_look_s=min(((deadline - now).total_seconds() for deadline in deadlines), default=math.inf),
    )


def driver_limit(view: ClusterView) -> int:
    """Drivers one head bears at once, by its memory; `max_runs` may only lower it.

    An attached head does not tell its size: there somebody's `max_runs` is all there is to go by.
    """
    if view.kind is ClusterKind.ATTACHED:
        return ATTACHED_DRIVERS if view.max_runs is None else view.max_runs
    by_memory = max(1, int((view.head_memory_gib - HEAD_OWN_GIB) / DRIVER_GIB))
    return by_memory if view.max_runs is None else min(by_memory, view.max_runs)


def _max_wait_s(run: WaitingRun, snapshot: AdmissionSnapshot) -> int | None:
    """The run's own (which is its job's unless it was given one), else its group's (A36)."""
    group = snapshot.groups.get(run.cluster_group or "")
    return run.max_wait_s if run.max_wait_s is not None or group is None else group.policy.max_wait_s


def _deadline(run: WaitingRun, snapshot: AdmissionSnapshot) -> datetime | None:
    max_wait_s = _max_wait_s(run, snapshot)
    return None if max_wait_s is None else run.enqueued_at + timedelta(seconds=max_wait_s)


def _too_old(run: WaitingRun, snapshot: AdmissionSnapshot, now: datetime) -> GiveUp | None:
    deadline = _deadline(run, snapshot)
    if deadline is None or now < deadline:
        return None
    waited_for = run.condition.code if run.condition else None
    params: dict[str, Any] = {"max_wait_s": _max_wait_s(run, snapshot), "waited_for": waited_for}
    return GiveUp(run=run, end=End(end_class=EndClass.TIMEOUT, code=EndCode.MAX_WAIT, params=params))


def _place(run: WaitingRun, room: _Room, by_name: Mapping[str, ClusterView], now: datetime) -> Start | Wait | GiveUp:
    if run.run_mode is RunMode.ON_DEMAND:
        return _place_on_demand(run, room, now)
    if run.run_mode is RunMode.CLUSTER:
        return _place_on_cluster(run, room, now)
    return _place_in_group(run, room, by_name, now)


def _place_on_demand(run: WaitingRun, room: _Room, now: datetime) -> Start | Wait | GiveUp:
    name = run.resource_group or ""
    group = room.snapshot.resource_groups.get(name)
    if group is None:
        return _gone(run, "resource_group", name)
    used = room.quota_used.get(name, Resources())
    if short := beyond_quota(run.demand.resources, used, group.quota):
        if not run.demand.resources.beyond(group.quota):  # what can never fit keeps nobody else from fitting
            room.kept.setdefault(name, run.id)
        reason = Reason(code="QUOTA_INSUFFICIENT", owner=Owner.QUOTA, params={"resource_group": name, "short": short})
        return Wait(run=run, reason=reason, decision=_decision(run, now, reason=reason))
    if name in room.kept:
        reason = Reason(code="QUEUED_BEHIND", params={"resource_group": name, "run": room.kept[name]})
        return Wait(run=run, reason=reason, decision=_decision(run, now, reason=reason))
    room.quota_used[name] = used + run.demand.resources
    because = f"Resource group {name} has room for a cluster of its own."
    told = _decision(run, now, chosen=OWN_CLUSTER, because=because)
    return Start(run=run, cluster_id=None, cluster=None, decision=told)


def _place_on_cluster(run: WaitingRun, room: _Room, now: datetime) -> Start | Wait | GiveUp:
    view = room.snapshot.clusters.get(run.cluster_id or "")
    if view is None or view.state is ClusterState.DELETING:
        return GiveUp(
            run=run,
            end=End(end_class=EndClass.LOST, code=EndCode.CLUSTER_DELETED, params={"cluster": run.cluster}),
        )
    reason = cluster_unready(view) or match_cluster(view, run.demand) or room.lacks(view, run.demand)
    if reason is None:
        room.take(view, run.demand)
        told = _decision(run, now, chosen=view.name, because=f"{view.name} is the job's cluster and has room.")
        return Start(run=run, cluster_id=view.id, cluster=view.name, decision=told)
    if reason.code in {"HEAD_BUSY", "QUEUED_BEHIND"}:
        room.kept.setdefault(view.id, run.id)
    return Wait(run=run, reason=reason, decision=_decision(run, now, reason=reason))


def _place_in_group(
    run: WaitingRun, room: _Room, by_name: Mapping[str, ClusterView], now: datetime
) -> Start | Wait | GiveUp:
    name = run.cluster_group or ""
    group = room.snapshot.groups.get(name)
    if group is None:
        return _gone(run, "cluster_group", name)
    members = {member.cluster: by_name[member.cluster] for member in group.members if member.cluster in by_name}
    lacks = {name: room.lacks(view, run.demand) for name, view in members.items()}
    decision: Decision = choose_member(group, members, run.demand, lacks, now)
    told = {"run": run.id, **decision.to_json()}
    if decision.chosen is not None:
        view = members[decision.chosen]
        room.take(view, run.demand)
        timeout_s = group.policy.lost_timeout_s
        return Start(run=run, cluster_id=view.id, cluster=view.name, decision=told, lost_timeout_s=timeout_s)
    for candidate in decision.candidates:
        if candidate.eligible:
            room.kept.setdefault(members[candidate.cluster].id, run.id)
    assert decision.waiting is not None  # noqa: S101 - a decision either chooses or says what it waits for
    return Wait(run=run, reason=decision.waiting, decision=told)


def cluster_unready(view: ClusterView) -> Reason | None:
    """Why this cluster takes no work at all now."""
    if view.state is not ClusterState.RUNNING:
        not_running = {"cluster": view.name, "state": str(view.state)}
        return Reason(code="CLUSTER_NOT_RUNNING", owner=Owner.USER, params=not_running)
    if view.health is not HealthStatus.HEALTHY:
        failure = view.health_failure.code if view.health_failure else None
        params = {"cluster": view.name, "health": str(view.health), "failure": failure}
        return Reason(code="CLUSTER_UNHEALTHY", owner=Owner.PLATFORM, params=params)
    if view.cordoned:
        return Reason(code="CLUSTER_CORDONED", owner=Owner.USER, params={"cluster": view.name})
    return None


def _gone(run: WaitingRun, kind: str, name: str) -> GiveUp:
    params = {"kind": kind, "name": name}
    return GiveUp(run=run, end=End(end_class=EndClass.PLACEMENT, code=EndCode.TARGET_DELETED, params=params))


def _decision(
    run: WaitingRun,
    now: datetime,
    *,
    chosen: str | None = None,
    because: str | None = None,
    reason: Reason | None = None,
) -> dict[str, Any]:
    """The record of policy.md §6 for the modes in which there is nothing to choose from."""
    return {
        "run": run.id,
        "evaluated_at": instant(now),
        "outcome": "dispatched" if chosen else "waiting",
        "chosen": chosen,
        "because": because,
        "reason": None if reason is None else {"code": reason.code, "params": reason.params},
        "candidates": [],
    }
