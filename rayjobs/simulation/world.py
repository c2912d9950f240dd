"""A discrete-event world in which the real admission decides: runs come, start, hold what they were given, and end."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node
from cluster_groups.model.demand import Bundles, ClusterView, Demand
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import QueueSettings, ResourceGroup
from kernel.resources import ANY_GPU, Resources, total
from rayjobs.decide.admit import AdmissionPlan, Start, plan_admission
from rayjobs.model.job import RunMode
from rayjobs.model.run import RunState
from rayjobs.simulation.outcome import Outcome, cost_of, waits_of
from rayjobs.simulation.trace import Arrivals, Nodes, SimulatedCluster, SimulatedGroup, Spread, Trace, Workload
from rayjobs.snapshot import AdmissionSnapshot, Held, Load, WaitingRun

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
        self._waiting: dict[str, WaitingRun] = {}
        self._held: dict[str, dict[str, Held]] = {}
        """By cluster id or resource group, then by run."""
        self._waited_s: dict[str, list[float]] = {work.name: [] for work in trace.workloads}
        self._looks: list[tuple[int, float]] = []
        self._plan = AdmissionPlan()
        self._busy = _Busy(total([*(one.total for one in self._clusters.values()), *self._quotas()]))
        self._now_s = 0.0
        for arrival in arrivals(trace):
            self._push(arrival.at_s, arrival)

    def play(self) -> None:
        """Looks as the service does: when something happened or time alone may change the plan, but not too often."""
        pause_s = self._trace.look_every_s
        looked_s = -pause_s
        while self._events:
            due_s = looked_s + (0 if self._plan.starts else self._plan.next_look_s)
            look_s = max(min(due_s, self._events[0][0]), looked_s + pause_s)
            while self._events and self._events[0][0] <= look_s:
                self._happen()
            self._pass_to(look_s)
            self._look()
            looked_s = look_s

    def outcome(self) -> Outcome:
        unplaced: dict[str, Counter[str]] = {work.name: Counter() for work in self._trace.workloads}
        for wait in self._plan.waits:
            unplaced[_workload(wait.run.id)][wait.reason.code] += 1
        waits = {
            work.name: waits_of(self._waited_s[work.name], work.count, unplaced[work.name])
            for work in self._trace.workloads
        }
        return Outcome(
            makespan_s=self._now_s,
            waits=waits,
            utilisation=self._busy.utilisation,
            admissions=sum(one.started for one in waits.values()),
            rounds=len(self._looks),
            scheduler_s=sum(seconds for _, seconds in self._looks),
            cost=cost_of(self._looks),
        )

    def _happen(self) -> None:
        at_s, _, event = heappop(self._events)
        self._pass_to(at_s)
        if isinstance(event, _Arrival):
            self._waiting[event.run.id] = event.run
            self._runtime_s[event.run.id] = event.runtime_s
        else:
            held = self._held[_place(event)].pop(event.run.id)
            self._busy.give_back(held.amount)

    def _look(self) -> None:
        if not self._waiting:
            self._plan = AdmissionPlan()
            return
        snapshot = AdmissionSnapshot(
            runs=tuple(self._waiting.values()),
            clusters=self._clusters,
            resource_groups=self._groups,
            load={one: Load(drivers=0, held=tuple(self._held.get(one, {}).values())) for one in self._clusters},
            quota_held={one: tuple(self._held.get(one, {}).values()) for one in self._groups},
        )
        began = time.process_time()
        self._plan = plan_admission(snapshot, BEGIN + timedelta(seconds=self._now_s))
        self._looks.append((len(snapshot.runs), time.process_time() - began))
        for start in self._plan.starts:
            self._start(start)

    def _start(self, start: Start) -> None:
        run = self._waiting.pop(start.run.id)
        known = run.max_runtime_s is not None
        ends_by = BEGIN + timedelta(seconds=self._now_s + (run.max_runtime_s or 0)) if known else None
        held = Held(run=run.id, amount=run.demand.resources, ends_by=ends_by, nodes=start.placement)
        self._held.setdefault(_place(start), {})[run.id] = held
        self._busy.take(held.amount)
        submitted_s = (run.enqueued_at - BEGIN).total_seconds()
        self._waited_s[_workload(run.id)].append(self._now_s - submitted_s)
        self._push(self._now_s + self._runtime_s.pop(run.id), start)

    def _pass_to(self, at_s: float) -> None:
        if self._waiting:
            self._busy.count(at_s - self._now_s)
        self._now_s = at_s

    def _push(self, at_s: float, event: _Arrival | Start) -> None:
        self._number += 1
        heappush(self._events, (at_s, self._number, event))

    def _quotas(self) -> list[Resources]:
        return [group.quota for group in self._groups.values()]


class _Busy:
    """How much of what there is was in use while somebody waited."""

    def __init__(self, capacity: Resources) -> None:
        self._capacity = capacity.flat()
        self._used: dict[str, float] = defaultdict(float)
        self._seconds = 0.0
        self._used_seconds: dict[str, float] = defaultdict(float)

    def take(self, amount: Resources) -> None:
        for name, taken in amount.flat().items():
            self._used[name] += taken

    def give_back(self, amount: Resources) -> None:
        for name, given in amount.flat().items():
            self._used[name] -= given

    def count(self, seconds: float) -> None:
        self._seconds += seconds
        for name, used in self._used.items():
            self._used_seconds[name] += used * seconds

    @property
    def utilisation(self) -> dict[str, float]:
        return {
            name: self._used_seconds[name] / (there * self._seconds)
            for name, there in self._capacity.items()
            if self._seconds and 0 < there < _ENOUGH
        }


def arrivals(trace: Trace) -> Iterator[_Arrival]:
    chance = random.Random(trace.seed)  # noqa: S311 - a repeatable world, not a secret
    for work in trace.workloads:
        at_s = work.first_at_s
        for number in range(work.count):
            yield _Arrival(at_s=at_s, run=_run(work, number, at_s), runtime_s=_runtime_s(work, chance))
            poisson = work.arrivals is Arrivals.POISSON and work.every_s > 0
            at_s += chance.expovariate(1 / work.every_s) if poisson else work.every_s


def _runtime_s(work: Workload, chance: random.Random) -> float:
    drawn = work.runtime is Spread.EXPONENTIAL and work.runtime_s > 0
    runtime_s = chance.expovariate(1 / work.runtime_s) if drawn else work.runtime_s
    return runtime_s if work.max_runtime_s is None else min(runtime_s, work.max_runtime_s)


def _run(work: Workload, number: int, at_s: float) -> WaitingRun:
    target = work.cluster or work.resource_group
    return WaitingRun(
        id=f"{work.name}/{number}",
        version=1,
        run_mode=RunMode.CLUSTER if work.cluster else RunMode.ON_DEMAND,
        state=RunState.WAITING,
        queue=f"{'cluster' if work.cluster else 'resource_group'}/{target}",
        enqueued_at=BEGIN + timedelta(seconds=at_s),
        demand=_demand(work),
        priority=work.priority,
        max_runtime_s=work.max_runtime_s,
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
