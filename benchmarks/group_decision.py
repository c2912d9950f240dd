"""One round of admission over a group of 50 members and 5,000 waiting runs, as `plan_admission` decides it."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.report import Row
from cluster_groups.model.cluster import ClusterKind, ClusterState, Node
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup, Effect, Member, Policy, Rank, Window
from cluster_groups.model.health import HealthStatus
from kernel.resources import Resources
from rayjobs.decide.admit import plan_admission
from rayjobs.model.job import RunMode
from rayjobs.model.run import RunState
from rayjobs.snapshot import AdmissionSnapshot, Load, WaitingRun

MEMBERS, RUNS, NODES = 50, 5000, 10
GOAL_MS = 50.0
ROUNDS = 21
NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
NIGHTS = (Window(start="20:00", end="08:00"), Window(start="01:00", end="02:00", effect=Effect.CLOSED))


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    what: str
    policy: Policy
    is_full: bool = False
    demands: int = 1
    windows: tuple[Window, ...] = ()


CASES = (
    Case(what="nobody has room", policy=Policy(), is_full=True),
    Case(what="ordered", policy=Policy(spill_after_s=0)),
    Case(what="least_loaded, with windows", policy=Policy(rank=Rank.LEAST_LOADED, spill_after_s=0), windows=NIGHTS),
    Case(what="weighted", policy=Policy(rank=Rank.WEIGHTED, spill_after_s=0)),
    Case(
        what="weighted, with windows, 50 different demands",
        policy=Policy(rank=Rank.WEIGHTED, spill_after_s=0),
        demands=50,
        windows=NIGHTS,
    ),
)


def measure(scale: float) -> Sequence[Row]:
    return [_row(case, max(3, int(ROUNDS * min(1.0, scale)))) for case in CASES]


def _row(case: Case, rounds: int) -> Row:
    snapshot = _snapshot(case)
    took_ms = []
    for _ in range(rounds):
        began = time.process_time()
        plan = plan_admission(snapshot, NOW)
        took_ms.append((time.process_time() - began) * 1e3)
    median = statistics.median(took_ms)
    return Row(
        what=f"a round of {RUNS:,} runs and {MEMBERS} members: {case.what}",
        ours=f"{median:.0f} ms ({min(took_ms):.0f}-{max(took_ms):.0f}), {len(plan.starts)} started",
        goal=f"≤ {GOAL_MS:.0f} ms",
        met=median <= GOAL_MS,
    )


def _snapshot(case: Case) -> AdmissionSnapshot:
    clusters = [_cluster(number) for number in range(MEMBERS)]
    members = tuple(
        Member(cluster=view.name, order=number, tier=number // 20, weight=number + 1, windows=case.windows)
        for number, view in enumerate(clusters)
    )
    group = ClusterGroup(
        id="grp_1", name="g", revision=1, timezone="Asia/Shanghai", members=members, policy=case.policy,
        created_at=NOW, created_by="bench",
    )  # fmt: skip
    load = {view.id: Load(drivers=100 if case.is_full else 0) for view in clusters}
    return AdmissionSnapshot(
        runs=_runs(case.demands), clusters={view.id: view for view in clusters}, groups={"g": group}, load=load
    )


def _cluster(number: int) -> ClusterView:
    size = Resources(cpu=16, memory_gib=64)
    nodes = tuple(
        Node(id=f"n{node}", ip="", group="w", alive=True, is_head=False, total=size, available=size)
        for node in range(NODES)
    )
    return ClusterView(
        id=f"clu_{number}", name=f"c{number}", kind=ClusterKind.MANAGED, state=ClusterState.RUNNING,
        health=HealthStatus.HEALTHY, cordoned=False, resource_group=None, labels={}, nodes=nodes,
        maximum=size * NODES, max_runs=100,
    )  # fmt: skip


def _runs(demands: int) -> tuple[WaitingRun, ...]:
    asked = [Demand(resources=Resources(cpu=1 + kind % 4, memory_gib=kind)) for kind in range(demands)]
    return tuple(
        WaitingRun(
            id=f"run_{number:05}", version=1, run_mode=RunMode.CLUSTER_GROUP, state=RunState.WAITING,
            queue="cluster_group/g", cluster_group="g", enqueued_at=NOW - timedelta(seconds=RUNS - number),
            demand=asked[number % demands],
        )
        for number in range(RUNS)
    )  # fmt: skip
