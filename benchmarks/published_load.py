"""The load Kueue publishes, in real time, through Muster's real loops and a database; the clusters are stand-ins.

30 queues of 20 cpu; each gets 350 small, 100 medium and 50 large runs: 15,000 in all, at best over after 66 s. The
stand-in ends each run when its time is up. Kueue 0.17: 384 s, 80 s of processor on 2 cores; mean waits large 16.6 s,
medium 93.8 s, small 230.9 s.
"""

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pydantic import SecretStr, TypeAdapter
from sqlalchemy import func, select

from api.settings import Settings
from api.wiring import Services, close, prepare, wire
from benchmarks.report import Row
from benchmarks.stand_in_gateway import RUNTIME_S, StandInGateway
from cluster_groups.model.cluster import ClusterConfig, ClusterKind, ClusterState, Node
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.service.base import QUEUE_LOOP
from cluster_groups.service.resources import DEFAULT
from cluster_groups.store import clusters as cluster_store
from cluster_groups.tables import ClusterRow, ResourceGroupRow
from kernel.actor import SYSTEM_ACTOR
from kernel.ids import new_id
from kernel.resources import Resources
from rayjobs import job_store
from rayjobs.model.job import Job, JobSpec, Origin, Requirements, RunMode
from rayjobs.model.run import RunState
from rayjobs.run_service import ATTEMPT_LOOP, LOG_LOOP, RunRequest
from rayjobs.tables import IS_UNSETTLED, RunRow
from tests.postgres import find_initdb, postgres_server

QUEUES = 30
QUOTA_CPU = 20
GOAL_S = 100.0
KUEUE_S, KUEUE_CPU_S = 384.0, 80.0
KUEUE_WAITS_S = {"large": 16.6, "medium": 93.8, "small": 230.9}
PATIENCE_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """`count` runs a queue, one each `every_s`."""

    name: str
    count: int
    cpu: float
    runtime_s: float
    every_s: float
    priority: int


KINDS = (
    Kind(name="small", count=350, cpu=1, runtime_s=0.2, every_s=0.1, priority=1),
    Kind(name="medium", count=100, cpu=5, runtime_s=0.5, every_s=0.5, priority=5),
    Kind(name="large", count=50, cpu=20, runtime_s=1, every_s=1.2, priority=9),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    seconds: float
    cpu_s: float
    runs: int
    mean_waits_s: dict[str, float]


def measure(scale: float) -> Sequence[Row]:
    """`scale` shortens the queues, not their number."""
    rows = [*_rows("SQLite", _on_sqlite(scale), scale)]
    initdb = find_initdb()
    if initdb is None:
        return [*rows, Row(what="published load, PostgreSQL", ours="not measured: there is no initdb here")]
    before = _cpu_of_children()
    with postgres_server(initdb, fast=False) as server:
        found = asyncio.run(_play(f"{server}postgres", scale))
    server_cpu_s = _cpu_of_children() - before
    return [*rows, *_rows("PostgreSQL", found, scale, server_cpu_s)]


def _on_sqlite(scale: float) -> Found:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        return asyncio.run(_play(f"sqlite:///{folder}/muster.db", scale))


def _rows(database: str, found: Found, scale: float, server_cpu_s: float = 0) -> list[Row]:
    cpu_s = found.cpu_s + server_cpu_s
    whole = scale >= 1
    waits = ", ".join(f"{name} {wait_s:.1f} s" for name, wait_s in found.mean_waits_s.items())
    theirs = ", ".join(f"{name} {wait_s:.1f} s" for name, wait_s in KUEUE_WAITS_S.items())
    what = f"Kueue's published load, {found.runs} runs in {QUEUES} queues, {database}"
    return [
        Row(
            what=f"{what}: until the last has ended",
            ours=f"{found.seconds:.0f} s",
            alone=f"Kueue 0.17: {KUEUE_S:.0f} s",
            ratio=found.seconds / KUEUE_S if whole else None,
            goal=f"≤ {GOAL_S:.0f} s",
            met=found.seconds <= GOAL_S if whole else None,
        ),
        Row(
            what="the same: processor, submitter and database included",
            ours=f"{cpu_s:.0f} s",
            alone=f"Kueue 0.17: {KUEUE_CPU_S:.0f} s",
            ratio=cpu_s / KUEUE_CPU_S if whole else None,
            goal=f"< {KUEUE_CPU_S:.0f} s",
            met=cpu_s < KUEUE_CPU_S if whole else None,
        ),
        Row(what="the same: mean wait", ours=waits, alone=f"Kueue 0.17: {theirs}"),
    ]


async def _play(url: str, scale: float) -> Found:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        settings = Settings(state_dir=Path(folder), database_url=SecretStr(url), log_level="warning")
        services = wire(settings, gateway=StandInGateway())
        await prepare(services)
        jobs = await _lay_out(services)
        began, cpu = time.monotonic(), time.process_time()
        async with _loops(services):
            runs = await _submit(services, jobs, scale)
            await _wait_for_the_last(services)
            seconds, cpu_s = time.monotonic() - began, time.process_time() - cpu
        waits = await _mean_waits(services)
        await close(services)
    return Found(seconds=seconds, cpu_s=cpu_s, runs=runs, mean_waits_s=waits)


@asynccontextmanager
async def _loops(services: Services) -> AsyncIterator[None]:
    """Those of runs; there is nothing to probe."""
    tasks = [
        asyncio.create_task(loop.run())
        for loop in services.loops
        if loop.reconciler.name in {QUEUE_LOOP, ATTEMPT_LOOP, LOG_LOOP}
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _lay_out(services: Services) -> list[tuple[Kind, Job]]:
    """A cluster of one node for each queue, and the three jobs that run there."""
    jobs = []
    async with services.database.write() as session:
        group = await session.scalar(select(ResourceGroupRow).where(ResourceGroupRow.name == DEFAULT))
        assert group is not None
        # Nobody is let past the run at the head: the largest, of the highest priority, need a whole queue's quota.
        group.queue = {**group.queue, "reserve_after_s": 0}
        for number in range(QUEUES):
            session.add(_cluster(f"q{number}"))
            for kind in KINDS:
                job = _job(kind, f"q{number}")
                await job_store.insert(session, job)
                jobs.append((kind, job))
    return jobs


def _cluster(name: str) -> ClusterRow:
    now = datetime.now(UTC)
    config = ClusterConfig(
        name=name, kind=ClusterKind.ATTACHED, address="http://127.0.0.1:9", resource_group=DEFAULT, max_runs=100
    )
    size = Resources(cpu=QUOTA_CPU, memory_gib=64)
    node = Node(id=f"{name}-n", ip="127.0.0.1", group=None, alive=True, is_head=False, total=size)
    columns = cluster_store.config_columns(config) | cluster_store.state_columns(ClusterState.RUNNING, now)
    columns["nodes"] = [asdict(node)]
    columns["health"] = TypeAdapter(Health).dump_python(Health(status=HealthStatus.HEALTHY, since=now), mode="json")
    return ClusterRow(id=new_id("clu"), created_at=now, created_by="bench", **columns)


def _job(kind: Kind, cluster: str) -> Job:
    spec = JobSpec(
        name=f"{kind.name} on {cluster}",
        run_mode=RunMode.CLUSTER,
        cluster=cluster,
        entrypoint="true",
        priority=kind.priority,  # people give it only to on_demand runs; the queue is the same
        requirements=Requirements(cpu=kind.cpu),
        metadata={RUNTIME_S: str(kind.runtime_s)},
        max_runtime_s=2,
    )
    now, user = datetime.now(UTC), SYSTEM_ACTOR.user
    return Job(id=new_id("job"), origin=Origin.API, revision=1, spec=spec, created_at=now, created_by=user)


async def _submit(services: Services, jobs: Sequence[tuple[Kind, Job]], scale: float) -> int:
    """Each at its time, whatever has become of those before; who is late catches up."""
    due = sorted(
        (number * kind.every_s, kind.name, job.id, job)
        for kind, job in jobs
        for number in range(max(1, int(kind.count * scale)))
    )
    began = time.monotonic()
    tasks = []
    for at_s, _, _, job in due:
        await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
        request = RunRequest(job_id=job.id, job_revision=1, spec=job.spec)
        unit = partial(services.runs.submit, actor=SYSTEM_ACTOR, request=request)
        tasks.append(asyncio.create_task(services.database.write_together(unit)))
    await asyncio.gather(*tasks)
    return len(due)


async def _wait_for_the_last(services: Services) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        async with services.database.read() as session:
            left = await session.scalar(select(func.count()).select_from(RunRow).where(IS_UNSETTLED))
        if not left:
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"{left} runs are not over after {PATIENCE_S:.0f} s")


async def _mean_waits(services: Services) -> dict[str, float]:
    waited: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    async with services.database.read() as session:
        for run in await session.scalars(select(RunRow)):
            assert run.state == RunState.SUCCEEDED, (run.id, run.end)
            assert run.allocated_at is not None
            waited[run.job_name.partition(" ")[0]].append((run.allocated_at - run.enqueued_at).total_seconds())
    return {name: statistics.mean(found) for name, found in waited.items()}


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
