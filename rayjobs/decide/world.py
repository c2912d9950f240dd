"""The snapshot as a round of admission goes on, and what a target says of one run: a place, or what it waits for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from cluster_groups.decide.decision import Outcome
from cluster_groups.decide.match import match_cluster
from cluster_groups.decide.members import Standing, opened_tiers, survey
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup, Policy
from cluster_groups.model.quota import ResourceGroup
from kernel.clock import instant
from kernel.reasons import Reason
from rayjobs.decide.room import DRIVERS, MAX_STARTING, Ask, ClusterRoom, Grant, Room, lacking, quota_room
from rayjobs.snapshot import AdmissionSnapshot, Load, WaitingRun

Record = Callable[[], Mapping[str, Any]]
"""The record of policy.md §6, less the run: made when somebody keeps it, and once for all whom it is about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """`view` is None when the run's own cluster has to be made first; `policy` is that of the group that chose it."""

    room: Room
    grant: Grant
    view: ClusterView | None
    record: Record
    policy: Policy | None = None
    window_ends_at: datetime | None = None
    """When its member's window closes and the policy has Muster stop what runs there; None: it never does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stuck:
    """`rooms` could be kept for it; none where it waits for something else than room.

    `fits`: there is room for it now, only not for longer than till somebody else's turn.
    """

    reason: Reason
    record: Record = field(compare=False)
    rooms: tuple[tuple[Room, Ask, str], ...] = field(default=(), compare=False)
    fits: bool = False
    no_room_at: datetime | None = None
    """Only members' lack of room keeps it from a cluster group, now."""
    opens_after_s: int | None = None
    """How long it must have waited for room before more members are open to it; None: all are."""
    next_change_at: datetime | None = None
    """When time alone changes this."""


class Kind(NamedTuple):
    """What tells runs of one demand from each other in a cluster group (see `members.Wish`)."""

    opened: int
    tried: frozenset[str]
    max_runtime_s: int | None
    is_evicted: bool


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
    moves: list[datetime] = field(init=False)
    """Of runs that had lost their clusters, with those of this round."""
    _rooms: dict[str, Room] = field(default_factory=dict)
    _clusters: dict[str, ClusterRoom] = field(default_factory=dict)
    _matches: dict[tuple[str, int], Reason | None] = field(default_factory=dict)
    _surveys: dict[str, tuple[Standing, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.moves = list(self.snapshot.moves)
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

    def survey(self, group: ClusterGroup) -> tuple[Standing, ...]:
        """The same for all who ask the group."""
        if group.name not in self._surveys:
            self._surveys[group.name] = survey(group, self.by_name, self.now)
        return self._surveys[group.name]

    def kind_of(self, run: WaitingRun) -> Kind | None:
        """None: it does not wait for a cluster group."""
        group = None if run.cluster_group is None else self.snapshot.groups.get(run.cluster_group)
        if group is None:
            return None
        policy = group.policy
        opened = opened_tiers(policy, run.no_room_since, self.now)
        return Kind(opened, run.tried, run.max_runtime_s if policy.fit_in_window else None, run.is_evicted)

    def unsettled(self, view: ClusterView) -> Reason | None:
        """A cluster that was away is given nothing before everything is over there that went on without Muster."""
        load = self.snapshot.load.get(view.id)
        if load is None or load.stale == 0:
            return None
        return Reason(code="STALE_ATTEMPTS", params={"cluster": view.name, "attempts": load.stale})


@dataclass(slots=True)
class Full:
    """That there was no room is true of all who ask for the same, as long as nobody takes anything."""

    _stuck: Stuck | None = None
    _version: int = 0

    def known(self, version: int) -> Stuck | None:
        return self._stuck if version == self._version else None

    def keep(self, found: Placed | Stuck, version: int) -> Placed | Stuck:
        if isinstance(found, Stuck) and not found.fits:
            self._stuck, self._version = found, version
        return found


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
        return behind(room, cluster=name)
    if ask.gang is not None:
        found = room.partly(ask.gang)
        params = {"cluster": name, "fitting": found.fitting, "wanted": found.wanted}
        return Reason(code="GANG_PARTIAL", params=params)
    way = dict(ask.ways[0])
    free = {one: max(room.free.get(one, 0), 0) for one in lacking(ask.ways[0], room.free)}
    short = {one: {"wanted": way[one], "free": amount} for one, amount in free.items()}
    return Reason(code="QUEUED_BEHIND", params={"cluster": name, "short": short})


def record(
    now: datetime, *, chosen: str | None = None, because: Reason | None = None, reason: Reason | None = None
) -> Record:
    """For the modes in which there is nothing to choose from."""
    told: dict[str, Any] = {
        "evaluated_at": instant(now),
        "outcome": str(Outcome.DISPATCHED if chosen else Outcome.WAITING),
        "chosen": chosen,
        "because": [because.told] if because else [],
        "reason": reason.told if reason else None,
        "candidates": [],
    }
    return lambda: told


def fits_now(room: ClusterRoom, ask: Ask) -> bool:
    """But for whom it is kept: a busy head is as good as no room."""
    return not room.is_starting_enough and room.fitting(ask) is not None


def behind(room: Room, **where: str) -> Reason:
    held = room.hold.run if room.hold else None
    return Reason(code="QUEUED_BEHIND", params={**where, "run": held})
