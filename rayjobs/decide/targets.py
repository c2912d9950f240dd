"""Where a line of equal runs may go: out of a quota, to one cluster, or to a member of a cluster group.

A target answers for one run after the other with the place it gets or with what it waits for.
"""

from cluster_groups.decide.match import mismatch
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import ResourceGroup
from kernel.reasons import Owner, Reason
from rayjobs.decide.in_group import InGroup
from rayjobs.decide.room import Ask, Grant, Room, cluster_ask, lacking, quota_ask
from rayjobs.decide.world import Full, Placed, Stuck, Target, World, behind, fits_now, offer, record
from rayjobs.model.job import RunMode
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.snapshot import WaitingRun

OWN_CLUSTER = "a cluster of its own"


def target_of(run: WaitingRun, world: World) -> Target | End:
    """An end where what the run names is no longer there."""
    if run.run_mode is RunMode.ON_DEMAND:
        pool = world.snapshot.resource_groups.get(run.resource_group or "")
        return _gone("resource_group", run.resource_group) if pool is None else OnDemand(pool, run.demand, world)
    if run.run_mode is RunMode.CLUSTER_GROUP:
        group, kind = world.snapshot.groups.get(run.cluster_group or ""), world.kind_of(run)
        if group is None or kind is None:
            return _gone("cluster_group", run.cluster_group)
        return InGroup(group, run.demand, kind, world)
    view = world.snapshot.clusters.get(run.cluster_id or "")
    if view is None or view.state is ClusterState.DELETING:
        return End(end_class=EndClass.LOST, code=EndCode.CLUSTER_DELETED, params={"cluster": run.cluster})
    return OnCluster(view, run.demand, world)


class OnDemand:
    def __init__(self, group: ResourceGroup, demand: Demand, world: World) -> None:
        self._group = group
        self._world = world
        self._room = world.quota(group)
        self._ask = quota_ask(demand)
        self._most = group.quota.flat()
        self._is_possible = not lacking(self._ask.ways[0], self._most)
        self._full = Full()

    def place(self, run: WaitingRun) -> Placed | Stuck:
        return self._full.known(self._room.version) or self._full.keep(self._place(run), self._room.version)

    def kept(self, name: str) -> tuple[Room, Ask] | None:
        return (self._room, self._ask) if name == self._group.name and self._is_possible else None

    def _place(self, run: WaitingRun) -> Placed | Stuck:
        name = self._group.name
        grant = self._room.offer(self._ask, run, self._world.now)
        if grant is not None:
            because = Reason(code="QUOTA_HAS_ROOM", params={"resource_group": name})
            told = record(self._world.now, chosen=OWN_CLUSTER, because=because)
            return Placed(room=self._room, grant=grant, view=None, record=told)
        fits = self._room.fitting(self._ask) is not None
        reason = behind(self._room, resource_group=name) if fits else self._beyond_quota()
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
        self._unfit = cluster_unready(view) or world.unsettled(view) or mismatch(view, demand)
        self._room = world.cluster(view)
        self._ask = cluster_ask(demand, view)
        self._full = Full()

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
            because = Reason(code="CLUSTER_HAS_ROOM", params={"cluster": view.name})
            told = record(now, chosen=view.name, because=because)
            return Placed(room=self._room, grant=found, view=view, record=told)
        if never := self._world.match(view, self._demand):
            return Stuck(reason=never, record=record(now, reason=never))
        rooms = ((self._room, self._ask, view.name),)
        fits = fits_now(self._room, self._ask)
        return Stuck(reason=found, record=record(now, reason=found), rooms=rooms, fits=fits)


def cluster_unready(view: ClusterView) -> Reason | None:
    """Why this cluster takes no work at all now."""
    if view.state is not ClusterState.RUNNING:
        not_running = {"cluster": view.name, "state": str(view.state)}
        owner = Owner.PLATFORM if view.state is ClusterState.STARTING else Owner.USER
        return Reason(code="CLUSTER_NOT_RUNNING", owner=owner, params=not_running)
    if view.health is not HealthStatus.HEALTHY:
        failure = view.health_failure.code if view.health_failure else None
        params = {"cluster": view.name, "health": str(view.health), "failure": failure}
        return Reason(code="CLUSTER_UNHEALTHY", owner=Owner.PLATFORM, params=params)
    if view.cordoned:
        return Reason(code="CLUSTER_CORDONED", owner=Owner.USER, params={"cluster": view.name})
    return None


def _gone(kind: str, name: str | None) -> End:
    params = {"kind": kind, "name": name}
    return End(end_class=EndClass.PLACEMENT, code=EndCode.TARGET_DELETED, params=params)
