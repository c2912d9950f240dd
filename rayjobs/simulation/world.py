"""A discrete-event world in which the real admission decides: runs come, start, hold what they were given, and end."""

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node
from cluster_groups.model.demand import Bundles, ClusterView, Demand
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import QueueSettings, ResourceGroup
from kernel.resources import ANY_GPU, Resources
from rayjobs.decide.admit import AdmissionPlan, Start, plan_admission
from rayjobs.model.job import RunMode
from rayjobs.model.run import Condition, RunState
from rayjobs.simulation.outcome import Outcome, cost_of, waits_of
from rayjobs.simulation.trace import Arrivals, Nodes, SimulatedCluster, SimulatedGroup, Spread, Trace, Workload
from rayjobs.snapshot import HELD_ON, AdmissionSnapshot, Held, Load, WaitingRun

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_ENOUGH = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Arrival:
    at_s: float
    run: WaitingRun
    runtime_s: float


def simulate(trace: Trace) -> Outcome:
    """Until everything that can ever start has ended. The same trace gives the same outcome, but for its cost."""
    world = _World(trace)
    world.play()
    return world.outcome()


class _World:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._clusters = {_id(one.name): _view(one) for one in trace.clusters}
        self._groups = {one.name: _group(one) for one in trace.resource_groups}
        self._events: list[tuple[float, int, _Arrival | Start]] = []
        self._number = 0
        self._runtime_s: dict[str, float] = {}
        self._waiting: dict[str, dict[str, WaitingRun]] = defaultdict(dict)
        """By queue, then by id."""
        self._held: dict[str, dict[str, Held]] = defaultdict(dict)
        """By cluster id or resource group, then by run."""
        self._touched: set[str] = set()
        """Queues in which something happened since they were looked at."""
        self._due: list[tuple[float, str]] = []
        """When time alone may change something in a queue."""
        self._waited_s: dict[str, list[float]] = {work.name: [] for work in trace.workloads}
        self._looks: list[tuple[int, float]] = []
        self._reasons: dict[str, dict[str, str]] = defaultdict(dict)
        """By queue: what its runs wait for."""
        self._busy = {one: _Busy(view.total) for one, view in self._clusters.items()}
        self._busy |= {one: _Busy(group.quota) for one, group in self._groups.items()}
        self._now_s = 0.0
        for arrival in arrivals(trace):
            self._push(arrival.at_s, arrival)

    def play(self) -> None:
        """Looks as the service does: when something happened or time alone may change the plan, but not too often.

        Queues share nothing here, so only those that were touched are looked at: the others' plans stay as they are.
        """
        looked_s = -self._trace.look_every_s
        while self._events or self._touched:
            next_s = (
                self._now_s if self._touched else min(self._events[0][0], self._due[0][0] if self._due else math.inf)
            )
            look_s = max(next_s, looked_s + self._trace.look_every_s)
            while self._events and self._events[0][0] <= look_s:
                self._happen()
            while self._due and self._due[0][0] <= look_s:
                self._touched.add(heappop(self._due)[1])
            self._now_s = look_s
            self._look()
            looked_s = look_s

    def outcome(self) -> Outcome:
        unplaced: dict[str, Counter[str]] = {work.name: Counter() for work in self._trace.workloads}
        for reasons in self._reasons.values():
            for run_id, code in reasons.items():
                unplaced[_workload(run_id)][code] += 1
        waits = {
            work.name: waits_of(self._waited_s[work.name], work.count, unplaced[work.name])
            for work in self._trace.workloads
        }
        return Outcome(
            makespan_s=self._now_s,
            waits=waits,
            utilisation=_utilisation(self._busy.values()),
            admissions=sum(one.started for one in waits.values()),
            rounds=len(self._looks),
            scheduler_s=sum(seconds for _, seconds in self._looks),
            cost=cost_of(self._looks),
        )

    def _happen(self) -> None:
        self._now_s, _, event = heappop(self._events)
        self._pass(event.run)
        if isinstance(event, _Arrival):
            self._waiting[event.run.queue][event.run.id] = event.run
            self._runtime_s[event.run.id] = event.runtime_s
        else:
            held = self._held[_place(event)].pop(event.run.id)
            self._busy[_place(event)].change(held.amount, -1)
        self._touched.add(event.run.queue)

    def _look(self) -> None:
        queues, self._touched = sorted(self._touched), set()
        while queues:
            plan = self._plan(queues)
            if plan.next_look_s < math.inf:
                for queue in queues:
                    heappush(self._due, (self._now_s + plan.next_look_s, queue))
            # Starting takes no time here: a head that had enough of it can take more at once.
            again = {one.runs[0].queue for one in plan.waiting if one.reason.code == "HEAD_BUSY"}
            queues = sorted(again & {start.run.queue for start in plan.starts})

    def _plan(self, queues: Sequence[str]) -> AdmissionPlan:
        snapshot = self._snapshot(queues)
        if not snapshot.runs:
            return AdmissionPlan()
        began = time.process_time()
        plan = plan_admission(snapshot, BEGIN + timedelta(seconds=self._now_s))
        self._looks.append((len(snapshot.runs), time.process_time() - began))
        for start in plan.starts:
            self._start(start)
        self._note(queues, plan)
        return plan

    def _snapshot(self, queues: Sequence[str]) -> AdmissionSnapshot:
        names = {queue.partition("/")[2] for queue in queues}
        clusters = {one: view for one, view in self._clusters.items() if view.name in names}
        return AdmissionSnapshot(
            runs=tuple(run for queue in queues for run in self._waiting[queue].values()),
            clusters=clusters,
            resource_groups=self._groups,
            load={one: Load(drivers=0, held=tuple(self._held[one].values())) for one in clusters},
            quota_held={one: tuple(self._held[one].values()) for one in self._groups if one in names},
        )

    def _note(self, queues: Sequence[str], plan: AdmissionPlan) -> None:
        """What runs wait for is part of the next snapshot: for whom capacity is held."""
        for queue in queues:
            self._reasons[queue] = {}
        for waiting in plan.waiting:
            since = BEGIN + timedelta(seconds=self._now_s)
            condition = Condition(
                code=waiting.reason.code, owner=waiting.reason.owner, params=waiting.reason.params, since=since
            )
            for run in waiting.runs:
                self._reasons[run.queue][run.id] = condition.code
                if HELD_ON in condition.params or run.held_on is not None:
                    self._waiting[run.queue][run.id] = replace(run, condition=condition)

    def _start(self, start: Start) -> None:
        run = start.run
        self._pass(run)
        del self._waiting[run.queue][run.id]
        now = BEGIN + timedelta(seconds=self._now_s)
        held = Held(run=run.id, amount=start.amount, ends_by=run.gives_back_by(now), nodes=start.placement)
        self._held[_place(start)][run.id] = held
        self._busy[_place(start)].change(held.amount, +1)
        self._waited_s[_workload(run.id)].append((now - run.enqueued_at).total_seconds())
        self._push(self._now_s + self._runtime_s.pop(run.id), start)

    def _pass(self, run: WaitingRun) -> None:
        """Time has passed in the place this run is for."""
        place = run.cluster_id or run.resource_group or ""
        self._busy[place].until(self._now_s, waited=bool(self._waiting[run.queue]))

    def _push(self, at_s: float, event: _Arrival | Start) -> None:
        self._number += 1
        heappush(self._events, (at_s, self._number, event))


class _Busy:
    """How much of a cluster or a quota was in use while somebody waited for it."""

    def __init__(self, capacity: Resources) -> None:
        self.capacity = {name: there for name, there in capacity.flat().items() if 0 < there < _ENOUGH}
        self.waited_s = 0.0
        self.used_seconds: dict[str, float] = defaultdict(float)
        self._used: dict[str, float] = defaultdict(float)
        self._since_s = 0.0

    def until(self, now_s: float, *, waited: bool) -> None:
        """Nothing has changed since the last call."""
        if waited:
            self.waited_s += now_s - self._since_s
            for name, used in self._used.items():
                self.used_seconds[name] += used * (now_s - self._since_s)
        self._since_s = now_s

    def change(self, amount: Resources, sign: int) -> None:
        for name, part in amount.flat().items():
            self._used[name] += sign * part


def _utilisation(places: Collection[_Busy]) -> dict[str, float]:
    """Of all together, by resource."""
    names = sorted({name for one in places for name in one.capacity if one.waited_s})
    return {
        name: sum(one.used_seconds[name] for one in places if name in one.capacity)
        / sum(one.capacity.get(name, 0) * one.waited_s for one in places)
        for name in names
    }


def arrivals(trace: Trace) -> Iterator[_Arrival]:
    chance = random.Random(trace.seed)  # noqa: S311 - a repeatable world, not a secret
    for work in trace.workloads:
        at_s = work.first_at_s
        demand = _demand(work)
        for number in range(work.count):
            yield _Arrival(at_s=at_s, run=_run(work, demand, number, at_s), runtime_s=_runtime_s(work, chance))
            poisson = work.arrivals is Arrivals.POISSON and work.every_s > 0
            at_s += chance.expovariate(1 / work.every_s) if poisson else work.every_s


def _runtime_s(work: Workload, chance: random.Random) -> float:
    drawn = work.runtime is Spread.EXPONENTIAL and work.runtime_s > 0
    runtime_s = chance.expovariate(1 / work.runtime_s) if drawn else work.runtime_s
    return runtime_s if work.max_runtime_s is None else min(runtime_s, work.max_runtime_s)


def _run(work: Workload, demand: Demand, number: int, at_s: float) -> WaitingRun:
    target = work.cluster or work.resource_group
    return WaitingRun(
        id=f"{work.name}/{number}",
        version=1,
        run_mode=RunMode.CLUSTER if work.cluster else RunMode.ON_DEMAND,
        state=RunState.WAITING,
        queue=f"{'cluster' if work.cluster else 'resource_group'}/{target}",
        enqueued_at=BEGIN + timedelta(seconds=at_s),
        demand=demand,
        priority=work.priority,
        max_runtime_s=work.max_runtime_s,
        start_timeout_s=0,
        cluster=work.cluster,
        cluster_id=_id(work.cluster) if work.cluster else None,
        resource_group=work.resource_group,
    )


def _workload(run_id: str) -> str:
    return run_id.rpartition("/")[0]


def _demand(work: Workload) -> Demand:
    one = _amount(work)
    if work.cluster is None or work.tasks == 1:
        return Demand(resources=one * work.tasks)
    bundles = (Bundles(size=one, count=work.tasks),)
    return Demand(resources=one * work.tasks, bundles=bundles, strategy=work.placement_strategy)


def _amount(part: Nodes | Workload) -> Resources:
    gpu = {part.gpu_type or ANY_GPU: float(part.gpu)} if part.gpu else {}
    return Resources(cpu=part.cpu, memory_gib=part.memory_gib, gpu=gpu)


def _id(cluster: str) -> str:
    return f"clu_{cluster}"


def _place(start: Start) -> str:
    return start.cluster_id or start.run.resource_group or ""


def _view(cluster: SimulatedCluster) -> ClusterView:
    nodes = [
        Node(id=f"{kind}-{index}", ip="", group=str(kind), alive=True, is_head=False, total=_amount(nodes))
        for kind, nodes in enumerate(cluster.nodes)
        for index in range(nodes.count)
    ]
    return ClusterView(
        id=_id(cluster.name),
        name=cluster.name,
        kind=ClusterKind.ATTACHED,
        state=ClusterState.RUNNING,
        health=HealthStatus.HEALTHY,
        resource_group=cluster.resource_group,
        nodes=tuple(nodes),
        max_runs=_ENOUGH,
    )


def _group(group: SimulatedGroup) -> ResourceGroup:
    return ResourceGroup(
        id=f"rgp_{group.name}",
        name=group.name,
        resource_package="simulated",
        quota=Resources(cpu=group.cpu, memory_gib=group.memory_gib, gpu=group.gpu),
        queue=QueueSettings(aging_s=group.aging_s, reserve_after_s=group.reserve_after_s),
        created_at=BEGIN,
        created_by="simulation",
    )
