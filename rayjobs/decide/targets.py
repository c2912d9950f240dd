"""Where a line of equal runs may go: out of a quota, to one cluster, or to a member of a cluster group.

A target answers for one run after the other with the place it gets or with what it waits for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from cluster_groups.decide.choose import choose_member, match_cluster, mismatch, refusal_of
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import ResourceGroup
from kernel.clock import instant
from kernel.reasons import Owner, Reason
from rayjobs.decide.room import (
    DRIVERS,
    MAX_STARTING,
    Ask,
    ClusterRoom,
    Grant,
    Room,
    cluster_ask,
    lacking,
    quota_ask,
    quota_room,
)
from rayjobs.model.job import RunMode
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.snapshot import AdmissionSnapshot, Load, WaitingRun

OWN_CLUSTER = "a cluster of its own"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """`view` is None when the run's own cluster has to be made first; `lost_timeout_s` None: nobody's policy says."""

    room: Room
    grant: Grant
    view: ClusterView | None
    record: Mapping[str, Any]
    lost_timeout_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stuck:
    """`rooms` could be kept for it; none where it waits for something else than room.

    `fits`: there is room for it now, only not for longer than till somebody else's turn.
    """

    reason: Reason
    record: Mapping[str, Any]
    rooms: tuple[tuple[Room, Ask, str], ...] = ()
    fits: bool = False


class Target(Protocol):
    def place(self, run: WaitingRun) -> Placed | Stuck:
        """Nothing is taken yet."""
        ...

    def kept(self, name: str) -> tuple[Room, Ask] | None:
        """The room of this name, if it may still be kept for such a run."""
        ...


@dataclass(slots=True)
class World:
    """The snapshot with what is left of each room as the round goes on."""

    snapshot: AdmissionSnapshot
    now: datetime
    by_name: Mapping[str, ClusterView] = field(init=False)
    _rooms: dict[str, Room] = field(default_factory=dict)
    _clusters: dict[str, ClusterRoom] = field(default_factory=dict)
    _matches: dict[tuple[str, int], Reason | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name = {view.name: view for view in self.snapshot.clusters.values()}

    def quota(self, group: ResourceGroup) -> Room:
        if group.name not in self._rooms:
            self._rooms[group.name] = quota_room(group, self.snapshot.quota_held.get(group.name, ()))
        return self._rooms[group.name]

    def cluster(self, view: ClusterView) -> ClusterRoom:
        if view.id not in self._clusters:
            self._clusters[view.id] = ClusterRoom(view, self.snapshot.load.get(view.id, Load()))
        return self._clusters[view.id]

    def match(self, view: ClusterView, demand: Demand) -> Reason | None:
        key = (view.id, id(demand))
        if key not in self._matches:
            self._matches[key] = match_cluster(view, demand)
        return self._matches[key]


def target_of(run: WaitingRun, world: World) -> Target | End:
    """An end where what the run names is no longer there."""
    if run.run_mode is RunMode.ON_DEMAND:
        pool = world.snapshot.resource_groups.get(run.resource_group or "")
        return _gone("resource_group", run.resource_group) if pool is None else OnDemand(pool, run.demand, world)
    if run.run_mode is RunMode.CLUSTER_GROUP:
        group = world.snapshot.groups.get(run.cluster_group or "")
        return _gone("cluster_group", run.cluster_group) if group is None else InGroup(group, run.demand, world)
    view = world.snapshot.clusters.get(run.cluster_id or "")
    if view is None or view.state is ClusterState.DELETING:
        return End(end_class=EndClass.LOST, code=EndCode.CLUSTER_DELETED, params={"cluster": run.cluster})
    return OnCluster(view, run.demand, world)


@dataclass(slots=True)
class _Full:
    """That there was no room is true of all who ask for the same, as long as nobody takes anything."""

    _stuck: Stuck | None = None
    _version: int = 0

    def known(self, version: int) -> Stuck | None:
        return self._stuck if version == self._version else None

    def keep(self, found: Placed | Stuck, version: int) -> Placed | Stuck:
        if isinstance(found, Stuck) and not found.fits:
            self._stuck, self._version = found, version
        return found


class OnDemand:
    def __init__(self, group: ResourceGroup, demand: Demand, world: World) -> None:
        self._group = group
        self._world = world
        self._room = world.quota(group)
        self._ask = quota_ask(demand)
        self._most = group.quota.flat()
        self._is_possible = not lacking(self._ask.ways[0], self._most)
        self._full = _Full()

    def place(self, run: WaitingRun) -> Placed | Stuck:
        return self._full.known(self._room.version) or self._full.keep(self._place(run), self._room.version)

    def kept(self, name: str) -> tuple[Room, Ask] | None:
        return (self._room, self._ask) if name == self._group.name and self._is_possible else None

    def _place(self, run: WaitingRun) -> Placed | Stuck:
        name = self._group.name
        grant = self._room.offer(self._ask, run, self._world.now)
        if grant is not None:
            because = f"Resource group {name} has room for a cluster of its own."
            told = record(self._world.now, chosen=OWN_CLUSTER, because=because)
            return Placed(room=self._room, grant=grant, view=None, record=told)
        fits = self._room.fitting(self._ask) is not None
        reason = _behind(self._room, resource_group=name) if fits else self._beyond_quota()
        rooms = ((self._room, self._ask, name),) if self._is_possible else ()  # else it holds nobody up
        return Stuck(reason=reason, record=record(self._world.now, reason=reason), rooms=rooms, fits=fits)

    def _beyond_quota(self) -> Reason:
        (way,) = self._ask.ways
        needed, most = dict(way), self._most
        short = {
            name: {
                "needed": needed[name],
                "used": most.get(name, 0) - self._room.free.get(name, 0),
                "max": most.get(name, 0),
            }
            for name in lacking(way, self._room.free)
        }
        params = {"resource_group": self._group.name, "short": short}
        return Reason(code="QUOTA_INSUFFICIENT", owner=Owner.QUOTA, params=params)


class OnCluster:
    def __init__(self, view: ClusterView, demand: Demand, world: World) -> None:
        self._view = view
        self._demand = demand
        self._world = world
        self._unfit = cluster_unready(view) or mismatch(view, demand)
        self._room = world.cluster(view)
        self._ask = cluster_ask(demand, view)
        self._full = _Full()

    def place(self, run: WaitingRun) -> Placed | Stuck:
        return self._full.known(self._room.version) or self._full.keep(self._place(run), self._room.version)

    def kept(self, name: str) -> tuple[Room, Ask] | None:
        is_possible = self._unfit is None and self._world.match(self._view, self._demand) is None
        return (self._room, self._ask) if name == self._view.name and is_possible else None

    def _place(self, run: WaitingRun) -> Placed | Stuck:
        now, view = self._world.now, self._view
        if self._unfit is not None:
            return Stuck(reason=self._unfit, record=record(now, reason=self._unfit))
        found = offer(self._room, self._ask, run, now)
        if isinstance(found, Grant):
            told = record(now, chosen=view.name, because=f"{view.name} is the job's cluster and has room.")
            return Placed(room=self._room, grant=found, view=view, record=told)
        if never := self._world.match(view, self._demand):
            return Stuck(reason=never, record=record(now, reason=never))
        rooms = ((self._room, self._ask, view.name),)
        fits = _fits(self._room, self._ask)
        return Stuck(reason=found, record=record(now, reason=found), rooms=rooms, fits=fits)


class InGroup:
    def __init__(self, group: ClusterGroup, demand: Demand, world: World) -> None:
        self._group = group
        self._demand = demand
        self._world = world
        names = (member.cluster for member in group.members)
        self._views = {name: world.by_name[name] for name in names if name in world.by_name}
        self._asks = {name: cluster_ask(demand, view) for name, view in self._views.items()}
        self._full = _Full()

    def place(self, run: WaitingRun) -> Placed | Stuck:
        version = sum(self._room(name).version for name in self._asks)
        return self._full.known(version) or self._full.keep(self._place(run), version)

    def kept(self, name: str) -> tuple[Room, Ask] | None:
        member = next((one for one in self._group.members if one.cluster == name), None)
        if member is None or refusal_of(member, self._views.get(name), self._match) is not None:
            return None
        return self._room(name), self._asks[name]

    def _place(self, run: WaitingRun) -> Placed | Stuck:
        found = {name: offer(self._room(name), ask, run, self._world.now) for name, ask in self._asks.items()}
        lacks = {name: one if isinstance(one, Reason) else None for name, one in found.items()}
        decision = choose_member(self._group, self._views, lacks, self._world.now, self._match)
        if decision.chosen is None:
            assert decision.waiting is not None  # noqa: S101 - a decision either chooses or says what it waits for
            able = [one.cluster for one in decision.candidates if one.eligible]
            rooms = tuple((self._room(name), self._asks[name], name) for name in able)
            fits = any(_fits(self._room(name), self._asks[name]) for name in able)
            return Stuck(reason=decision.waiting, record=decision.to_json(), rooms=rooms, fits=fits)
        grant = found[decision.chosen]
        assert isinstance(grant, Grant)  # noqa: S101 - what is chosen fits
        return Placed(
            room=self._room(decision.chosen),
            grant=grant,
            view=self._views[decision.chosen],
            record=decision.to_json(),
            lost_timeout_s=self._group.policy.lost_timeout_s,
        )

    def _room(self, name: str) -> ClusterRoom:
        return self._world.cluster(self._views[name])

    def _match(self, view: ClusterView) -> Reason | None:
        return self._world.match(view, self._demand)


def offer(room: ClusterRoom, ask: Ask, run: WaitingRun, now: datetime) -> Grant | Reason:
    """What a run may take of a cluster now, or what it waits for there."""
    drivers = int(room.limit - room.free[DRIVERS])
    if drivers >= room.limit:
        return Reason(code="HEAD_BUSY", params={"drivers": drivers, "limit": room.limit})
    if room.is_starting_enough:
        return Reason(code="HEAD_BUSY", params={"drivers": room.starting, "limit": MAX_STARTING})
    grant = room.offer(ask, run, now)
    if grant is not None:
        return grant
    name = room.view.name
    if room.fitting(ask) is not None:
        return _behind(room, cluster=name)
    if ask.gang is not None:
        found = room.partly(ask.gang)
        params = {"cluster": name, "fitting": found.fitting, "wanted": found.wanted}
        return Reason(code="GANG_PARTIAL", params=params)
    way = dict(ask.ways[0])
    free = {one: max(room.free.get(one, 0), 0) for one in lacking(ask.ways[0], room.free)}
    short = {one: {"wanted": way[one], "free": amount} for one, amount in free.items()}
    return Reason(code="QUEUED_BEHIND", params={"cluster": name, "short": short})


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


def record(
    now: datetime, *, chosen: str | None = None, because: str | None = None, reason: Reason | None = None
) -> dict[str, Any]:
    """The record of policy.md §6, less the run, for the modes in which there is nothing to choose from."""
    return {
        "evaluated_at": instant(now),
        "outcome": "dispatched" if chosen else "waiting",
        "chosen": chosen,
        "because": because,
        "reason": None if reason is None else {"code": reason.code, "params": reason.params},
        "candidates": [],
    }


def _fits(room: ClusterRoom, ask: Ask) -> bool:
    """But for whom it is kept: a busy head is as good as no room."""
    return not room.is_starting_enough and room.fitting(ask) is not None


def _behind(room: Room, **where: str) -> Reason:
    held = room.hold.run if room.hold else None
    return Reason(code="QUEUED_BEHIND", params={**where, "run": held})


def _gone(kind: str, name: str | None) -> End:
    params = {"kind": kind, "name": name}
    return End(end_class=EndClass.PLACEMENT, code=EndCode.TARGET_DELETED, params=params)
