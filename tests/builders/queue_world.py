"""A small world in which admission alone decides: runs come, start, and give back what they took.

`rayjobs.simulation` plays large ones, of queues that share nothing. Here cluster groups share clusters with others, so
that every look is at all of them, and each plan is kept for the tests to judge.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cluster_groups.model.demand import ClusterView
from cluster_groups.model.group import ClusterGroup
from cluster_groups.model.quota import QueueSettings, ResourceGroup
from kernel.resources import Resources, total
from rayjobs.decide.admit import AdmissionPlan, Start, plan_admission
from rayjobs.decide.order import order_key
from rayjobs.model.run import Condition, RunState
from rayjobs.snapshot import HELD_ON, AdmissionSnapshot, Held, Load, WaitingRun
from tests.builders.runs import NOW


@dataclass(frozen=True, slots=True)
class Coming:
    """`takes_s` is how long it really runs, its limit or less where it declares one."""

    run: WaitingRun
    takes_s: int


@dataclass(slots=True)
class QueueWorld:
    """`looks` are the plans by seconds since noon; what is held is checked against what there is at each of them."""

    clusters: Sequence[ClusterView] = ()
    resource_groups: Mapping[str, ResourceGroup] = field(default_factory=dict)
    groups: Mapping[str, ClusterGroup] = field(default_factory=dict)
    started_s: dict[str, float] = field(default_factory=dict)
    looks: list[tuple[float, AdmissionPlan]] = field(default_factory=list)
    _waiting: dict[str, WaitingRun] = field(default_factory=dict)
    _running: dict[str, tuple[float, str, Held]] = field(default_factory=dict)
    """By run: when it ends, where it runs, what it holds."""

    def play(self, coming: Sequence[Coming]) -> None:
        takes_s = {one.run.id: one.takes_s for one in coming}
        ahead = sorted(coming, key=lambda one: (one.run.enqueued_at, one.run.id))
        now_s = 0.0
        while ahead or self._waiting:
            while ahead and _seconds(ahead[0].run.enqueued_at) <= now_s:
                run = ahead.pop(0).run
                self._waiting[run.id] = run
            self._running = {run: one for run, one in self._running.items() if one[0] > now_s}
            plan = self._look(now_s, takes_s)
            ends = [end for end, _, _ in self._running.values()]
            coming_s = [_seconds(ahead[0].run.enqueued_at)] if ahead else []
            next_s = min([*ends, *coming_s, now_s + plan.next_look_s])
            if next_s == math.inf:
                return
            now_s = next_s

    def _look(self, now_s: float, takes_s: Mapping[str, int]) -> AdmissionPlan:
        """Until nothing more starts: a head takes only a few at once."""
        while True:
            plan = plan_admission(self.snapshot(), NOW + timedelta(seconds=now_s))
            self.looks.append((now_s, plan))
            for start in plan.starts:
                self._start(start, now_s, takes_s[start.run.id])
            self._remember(plan)
            self._check()
            if not plan.starts:
                return plan

    def snapshot(self) -> AdmissionSnapshot:
        held: dict[str, list[Held]] = {}
        for _, place, one in self._running.values():
            held.setdefault(place, []).append(one)
        return AdmissionSnapshot(
            runs=tuple(self._waiting.values()),
            clusters={view.id: view for view in self.clusters},
            groups=self.groups,
            resource_groups=self.resource_groups,
            load={
                view.id: Load(drivers=len(held.get(view.id, ())), held=tuple(held.get(view.id, ())))
                for view in self.clusters
            },
            quota_held={name: tuple(held.get(name, ())) for name in self.resource_groups},
        )

    def _start(self, start: Start, now_s: float, takes_s: int) -> None:
        run = self._waiting.pop(start.run.id)
        self.started_s[run.id] = now_s
        held = Held(
            run=run.id,
            amount=start.amount,
            ends_by=run.gives_back_by(NOW + timedelta(seconds=now_s)),
            nodes=start.placement,
        )
        self._running[run.id] = (now_s + takes_s, start.cluster_id or run.resource_group or "", held)

    def _remember(self, plan: AdmissionPlan) -> None:
        for one in plan.waiting:
            told = Condition(code=one.reason.code, owner="platform", params=one.reason.params, since=NOW)
            for run in one.runs:
                self._waiting[run.id] = replace(run, state=RunState.WAITING, condition=told)

    def _check(self) -> None:
        snapshot = self.snapshot()
        for name, held in snapshot.quota_held.items():
            assert not total(one.amount for one in held).beyond(self.resource_groups[name].quota)
        for view in self.clusters:
            load = snapshot.load[view.id]
            assert not load.used.beyond(view.total)
            for node in view.nodes:
                assert not total(one.nodes.get(node.id, Resources()) for one in load.held).beyond(node.total)


def held_in(plan: AdmissionPlan) -> list[WaitingRun]:
    return [run for one in plan.waiting if HELD_ON in one.reason.params for run in one.runs]


def order_queue(runs: Iterable[WaitingRun], queue: QueueSettings, now: datetime) -> list[WaitingRun]:
    return sorted(runs, key=lambda run: order_key(run, queue, now))


def _seconds(instant: datetime) -> float:
    return (instant - NOW).total_seconds()
