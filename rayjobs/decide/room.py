"""What is left of one resource group or one cluster as a round of admission goes on, and for whom it is kept.

Amounts are plain figures by name (`cpu`, `memory_gib`, `gpu.<TYPE>`, `drivers`): they are compared thousands of times.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial

from cluster_groups.decide.node_pool import Amounts, NodePool, pool_of, sizes_of
from cluster_groups.decide.place import Placement, node_names, place
from cluster_groups.model.cluster import ClusterKind
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.quota import ResourceGroup
from kernel.resources import ANY_GPU, SLACK, Resources, total
from rayjobs.snapshot import Held, Load, WaitingRun

ATTACHED_DRIVERS = 10
HEAD_OWN_GIB = 1.5
"""What a head needs for itself: GCS, dashboard and its modules, agents, monitor (0.85 GB measured, with margin)."""
DRIVER_GIB = 0.25
"""A driver with its supervisor actor (58 MB of its own) and watcher, measured 0.12-0.2 GB for `ray.init()`."""
MAX_STARTING = 4
"""Drivers of one head on their way at once: more only make each other slower (about two starts a second)."""
DRIVERS = "drivers"
"""One of them for each run on a cluster: what the head bears is an amount like any other."""

Need = tuple[tuple[str, float], ...]
Free = dict[str, float]

_GPU = "gpu."
_ONE_DRIVER = (DRIVERS, 1.0)


@dataclass(frozen=True, slots=True)
class Ask:
    """What equal runs ask of one room: one of `ways`, the first that fits, or the places of a gang."""

    ways: tuple[Need, ...] = ()
    gang: Demand | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What one run is given. `is_beyond`: out of what the run that the room is kept for will not need."""

    need: Need
    placement: Placement | None = None
    is_beyond: bool = False
    grows: bool = False
    """Some of its nodes are still to be added."""

    @property
    def amount(self) -> Resources:
        """All of it, with accelerators by the type they turned out to be."""
        if self.placement is not None:
            return total(self.placement.nodes.values())
        amounts = dict(self.need)
        gpu = {name.removeprefix(_GPU): count for name, count in self.need if name.startswith(_GPU)}
        return Resources(cpu=amounts.get("cpu", 0), memory_gib=amounts.get("memory_gib", 0), gpu=gpu)


@dataclass(frozen=True, slots=True)
class Release:
    """What comes back when one of those who hold something ends; `ends_by` is None where nobody knows when."""

    run: str
    ends_by: datetime | None
    need: Need
    nodes: Mapping[str, Amounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hold:
    """The room is kept for `run`; `free` and `pool` are what it will not need at its projected start, None: unknown."""

    run: str
    start: datetime | None
    free: Free
    pool: NodePool | None

    def is_over_by(self, instant: datetime | None) -> bool:
        """Whether who gives back at this instant gives back in time."""
        return self.start is not None and instant is not None and instant <= self.start


class Room:
    """A resource group's quota; `ClusterRoom` has nodes, too."""

    def __init__(self, free: Free, held: Sequence[Held]) -> None:
        self.free = free
        self.hold: Hold | None = None
        self.version = 0
        """One more whenever somebody takes something."""
        self._held = held
        self._started: list[Release] = []
        self._tried: dict[int, Grant | None] = {}

    @property
    def releases(self) -> list[Release]:
        """Of those who held something before, and of those who were given something in this round."""
        return [*map(self._release, self._held), *self._started]

    def offer(self, ask: Ask, run: WaitingRun, now: datetime) -> Grant | None:
        """What a run may take now; None if it does not fit, or only where the room is kept for another."""
        grant, hold = self.fitting(ask), self.hold
        if grant is None or hold is None or hold.run == run.id or hold.is_over_by(run.gives_back_by(now)):
            return grant
        return self._beyond(ask, hold)

    def fitting(self, ask: Ask) -> Grant | None:
        """The same, whoever it is kept for. Tried once for equal runs, until somebody takes something."""
        key = id(ask)
        if key not in self._tried:
            self._tried[key] = self._fit(ask)
        return self._tried[key]

    def take(self, grant: Grant, run: WaitingRun, now: datetime) -> None:
        self._tried.clear()
        self.version += 1
        nodes = grant.placement.by_node if grant.placement else {}
        self._started.append(Release(run.id, run.gives_back_by(now), grant.need, nodes))
        subtract(self.free, grant.need)
        if grant.is_beyond and self.hold is not None:
            subtract(self.hold.free, grant.need)

    def _fit(self, ask: Ask) -> Grant | None:
        return fit(self.free, None, ask)

    def _beyond(self, ask: Ask, hold: Hold) -> Grant | None:
        grant = fit(_smaller(self.free, hold.free), None, ask)
        return None if grant is None else Grant(grant.need, is_beyond=True)

    def _release(self, held: Held) -> Release:
        return Release(held.run or "", held.ends_by, need_of(held.amount))


class ClusterRoom(Room):
    def __init__(self, view: ClusterView, load: Load) -> None:
        self.view = view
        self.limit = driver_limit(view)
        self.starting = load.starting
        self.through = Counter(held.cluster_group for held in load.held if held.cluster_group is not None)
        """How many of those that run there came through each cluster group."""
        self.sizes = sizes_of(view)
        self.is_growing = any(node not in self.sizes for held in load.held for node in held.nodes)
        """Somebody has places on nodes that are not there (yet)."""
        self._before = [self._release(held) for held in load.held]
        self._sums = view.total.flat()
        self._gpus = [name for name in self._sums if name.startswith(_GPU)]
        free = {DRIVERS: float(self.limit - load.drivers), **self._sums}
        for one in self._before:
            subtract(free, one.need[1:])  # drivers are counted already
        super().__init__(_smaller(free, view.available.flat() | {DRIVERS: free[DRIVERS]}), load.held)
        self._pool: NodePool | None = None
        self._load: float | None = None

    @property
    def releases(self) -> list[Release]:
        return [*self._before, *self._started]

    @property
    def pool(self) -> NodePool:
        if self._pool is None:
            self._pool = pool_of(self.view, self.sizes, (one.nodes for one in self.releases))
        return self._pool

    @property
    def is_starting_enough(self) -> bool:
        return self.starting >= MAX_STARTING

    @property
    def load(self) -> float:
        """The largest of used/total over CPU, accelerators and memory, whoever uses them."""
        if self._load is None:
            self._load = self._loaded()
        return self._load

    @property
    def drivers_load(self) -> float:
        return round(1 - self.free[DRIVERS] / self.limit, 4)

    def take(self, grant: Grant, run: WaitingRun, now: datetime) -> None:
        super().take(grant, run, now)
        self.starting += 1
        self._load = None
        if run.cluster_group is not None:
            self.through[run.cluster_group] += 1
        self.is_growing |= grant.grows
        if grant.placement is None:
            return
        self.pool.take(grant.placement.by_node)
        if grant.is_beyond and self.hold is not None and self.hold.pool is not None:
            self.hold.pool.take(grant.placement.by_node)

    def partly(self, gang: Demand) -> Placement:
        """How much of a gang fits now."""
        return place(self.pool, gang, self.free)

    def _loaded(self) -> float:
        shares = [(there, self.free.get(name, 0)) for name, there in self._sums.items() if name not in self._gpus]
        shares.append(
            (sum(map(self._sums.__getitem__, self._gpus)), sum(self.free.get(name, 0) for name in self._gpus))
        )
        return round(max((1 - max(free, 0) / there for there, free in shares if there > 0), default=0), 4)

    def _fit(self, ask: Ask) -> Grant | None:
        if ask.gang is None:
            return fit(self.free, None, ask)
        return fit(self.free, self.pool, ask) or self._fit_grown(ask.gang)

    def _fit_grown(self, gang: Demand) -> Grant | None:
        """On nodes that the cluster would add for it: one gang at a time, or they would share what one asked for."""
        if not self.view.growth or self.is_growing or self.free[DRIVERS] < 1:
            return None
        more = total(shape.size * shape.count for shape in self.view.growth).flat()
        free = {name: self.free.get(name, 0) + more.get(name, 0) for name in {*self.free, *more}}
        placement = place(self.pool.with_more(node_names(self.view.growth)), gang, free)
        if not placement.is_complete:
            return None
        there = (amounts for node, amounts in placement.by_node.items() if node in self.sizes)
        return Grant(need_of_nodes(there), placement, grows=True)

    def _beyond(self, ask: Ask, hold: Hold) -> Grant | None:
        pool = self.pool if hold.pool is None or ask.gang is None else self.pool.capped(hold.pool)
        grant = fit(_smaller(self.free, hold.free), pool, ask)
        return None if grant is None else Grant(grant.need, grant.placement, is_beyond=True)

    def _release(self, held: Held) -> Release:
        """A gang holds what it has on the nodes that are there, with accelerators of the type of each node."""
        run = held.run or ""
        if held.nodes:
            there = {
                node: (amount.cpu, amount.memory_gib, sum(amount.gpu.values()), self.sizes[node][3])
                for node, amount in held.nodes.items()
                if node in self.sizes
            }
            return Release(run, held.ends_by, need_of_nodes(there.values()), there)
        return Release(run, held.ends_by, (_ONE_DRIVER, *need_of(_typed(held.amount, self.view.total))))


def quota_room(group: ResourceGroup, held: Sequence[Held]) -> Room:
    free = group.quota.flat()
    subtract(free, need_of(total(one.amount for one in held)))
    return Room(free, held)


def quota_ask(demand: Demand) -> Ask:
    return Ask(ways=(need_of(demand.resources),))


def cluster_ask(demand: Demand, view: ClusterView) -> Ask:
    """Accelerators of a plain run are of one type, the first of those it accepts that has enough."""
    return _ask(demand, _kinds(demand, view))


def cluster_asks(demand: Demand, views: Mapping[str, ClusterView]) -> dict[str, Ask]:
    """The same of many, one for all of them that have the same accelerators to choose from."""
    ask = cache(partial(_ask, demand))
    return {name: ask(_kinds(demand, view)) for name, view in views.items()}


def fit(free: Mapping[str, float], pool: NodePool | None, ask: Ask) -> Grant | None:
    if ask.gang is None:
        return next((Grant(way) for way in ask.ways if not lacking(way, free)), None)
    if pool is None or free[DRIVERS] < 1:
        return None
    placement = place(pool, ask.gang, free)
    return Grant((_ONE_DRIVER, *placement.taken.items()), placement) if placement.is_complete else None


def lacking(need: Need, free: Mapping[str, float]) -> list[str]:
    return [name for name, amount in need if amount > free.get(name, 0) + SLACK]


def need_of(amount: Resources) -> Need:
    need = [("cpu", amount.cpu)] if amount.cpu else []
    if amount.memory_gib:
        need.append(("memory_gib", amount.memory_gib))
    if amount.gpu:
        need += [(_GPU + name, count) for name, count in amount.gpu.items() if count]
    return tuple(need)


def need_of_nodes(nodes: Iterable[Amounts]) -> Need:
    """What a gang takes in all, its driver included."""
    sums: Free = {}
    for cpu, memory_gib, gpus, kind in nodes:
        for name, amount in (("cpu", cpu), ("memory_gib", memory_gib), (_GPU + kind, gpus)):
            if amount:
                sums[name] = sums.get(name, 0) + amount
    return (_ONE_DRIVER, *sums.items())


def subtract(free: Free, need: Need) -> None:
    for name, amount in need:
        free[name] = free.get(name, 0) - amount


def driver_limit(view: ClusterView) -> int:
    """Drivers one head bears at once, by its memory; `max_runs` may only lower it.

    An attached head does not tell its size: there somebody's `max_runs` is all there is to go by.
    """
    if view.kind is ClusterKind.ATTACHED:
        return ATTACHED_DRIVERS if view.max_runs is None else view.max_runs
    by_memory = max(1, int((view.head_memory_gib - HEAD_OWN_GIB) / DRIVER_GIB))
    return by_memory if view.max_runs is None else min(by_memory, view.max_runs)


def _ask(demand: Demand, kinds: tuple[str, ...]) -> Ask:
    if demand.bundles:
        return Ask(gang=demand)
    needed = demand.resources
    rest = (_ONE_DRIVER, *need_of(Resources(cpu=needed.cpu, memory_gib=needed.memory_gib)))
    cards = sum(needed.gpu.values())
    return Ask(ways=tuple((*rest, (_GPU + kind, cards)) for kind in kinds) if cards else (rest,))


def _kinds(demand: Demand, view: ClusterView) -> tuple[str, ...]:
    """Of accelerators, any of which will do; the best first."""
    gpu = demand.resources.gpu
    named = demand.gpu_types or tuple(name for name in gpu if name != ANY_GPU)
    return named or (tuple(sorted(view.total.gpu)) or (ANY_GPU,) if gpu else ())


def _smaller(one: Mapping[str, float], other: Mapping[str, float]) -> Free:
    return {name: min(amount, other.get(name, 0)) for name, amount in one.items()}


def _typed(amount: Resources, there: Resources) -> Resources:
    """Accelerators of a type that the cluster does not have are counted as of the one it has most of."""
    strange = sum(count for name, count in amount.gpu.items() if name not in there.gpu)
    if not strange or not there.gpu:
        return amount
    most = max(there.gpu, key=lambda name: (there.gpu[name], name))
    known = {name: count for name, count in amount.gpu.items() if name in there.gpu}
    known[most] = known.get(most, 0) + strange
    return Resources(cpu=amount.cpu, memory_gib=amount.memory_gib, gpu=known)
