"""Runs from submission to their last step: the real loops, step by step, on clusters that a test commands."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from cluster_groups.endpoints import Endpoints
from cluster_groups.model.cluster import Node, Observed, Phase, WorkerGroup
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.reconcile.clusters import ClusterReconciler
from cluster_groups.service.clusters import Clusters
from cluster_groups.service.groups import ClusterGroups
from cluster_groups.service.resources import ResourcePools
from cluster_groups.store import clusters as cluster_store
from cluster_groups.submits import FailedSubmits
from cluster_groups.tables import ClusterRow
from kernel.db import Database, Superseded
from kernel.events import EventRow
from kernel.loop import Hints, Loop, Reconciler
from kernel.resources import Resources
from rayjobs.attempt_logs import AttemptLogs
from rayjobs.decide.retry import Backoff
from rayjobs.explain import load_admission
from rayjobs.fleet import Fleet, RunsOfClusters, users_of_cluster_group, users_of_resource_group
from rayjobs.gateway.base import RayStatus
from rayjobs.job_service import JobService
from rayjobs.leases import Callback, Leases
from rayjobs.logs import LogKeeper, runner_folder
from rayjobs.model.job import JobSpec, Origin, Retry, RunMode, TaskGroup
from rayjobs.model.run import submission_id
from rayjobs.reconcile.admission import AdmissionReconciler
from rayjobs.reconcile.attempts import AttemptReconciler
from rayjobs.reconcile.logs import LogReconciler
from rayjobs.run_report import RunReport, report_one
from rayjobs.run_service import RunRequest, RunService
from rayjobs.snapshot import AdmissionSnapshot
from rayjobs.submission import Packages
from rayjobs.tables import AttemptRow, RunRow, TaskRow, UsageRow
from runtime_envs.check_uri import UriPolicy
from runtime_envs.packages.local import LocalBlobStore
from tests.builders.job_world import ANN
from tests.builders.targets import store_cluster
from tests.fakes.backend import FakeBackend
from tests.fakes.clock import FakeClock
from tests.fakes.gateway import FakeGateway
from tests.fakes.runs import FakeCredentials

BACKOFF = Backoff(least_s=60, most_s=120)
DRIVER_AGENT = "http://127.0.1.0:52365"
TRAINERS = TaskGroup(name="trainers", count=3, entrypoint="python train.py")
HELPERS = TaskGroup(name="helpers", count=5, entrypoint="python help.py")
GROUPS = (TRAINERS, HELPERS)


@dataclass(kw_only=True, slots=True)
class Outside:
    """What is there before the service, and after it."""

    clock: Any = field(default_factory=FakeClock)
    gateway: Any = field(default_factory=FakeGateway)
    backend: FakeBackend = field(default_factory=FakeBackend)
    callback: Callback | None = None
    lease_ttl_s: int | None = None


class RunWorld:
    """Cluster `c1` has a head and as many workers of 2 cpu as a test asks for."""

    ON_DEMAND = RunMode.ON_DEMAND
    HIDDEN = Origin.RAY_JOBS

    def __init__(self, database: Database, folder: Path, outside: Outside | None = None) -> None:
        outside = outside or Outside()
        self.database = database
        self.clock = outside.clock
        self.gateway = outside.gateway
        self.backend = outside.backend
        self.hints = hints = Hints()
        self.blobs = LocalBlobStore(folder)
        backends = {"local": self.backend}
        credentials = FakeCredentials()
        runs_of_clusters = RunsOfClusters(hints)
        self.pools = ResourcePools(self.clock, hints, list(backends), users_of_resource_group)
        clusters = Clusters(
            self.clock, hints, backends=list(backends), pools=self.pools, runs=runs_of_clusters, credentials=credentials
        )
        endpoints = Endpoints(database, backends, credentials)
        groups = ClusterGroups(self.clock, hints, users_of_cluster_group)
        self.fleet = Fleet(clusters, groups, self.pools, endpoints, FailedSubmits(self.clock))
        self.jobs = JobService(self.clock, UriPolicy())
        self.runs = runs_of_clusters.runs = RunService(self.clock, hints, self.jobs, self.fleet.reference)
        self.keeper = LogKeeper(database, self.blobs, self.gateway, hints, max_bytes=2**20)
        logs = AttemptLogs(database, self.keeper)
        packages = Packages(own=None, ray_uploads=None, volumes=None, callback=outside.callback)  # type: ignore[arg-type]  # gangs need no package
        attempts = AttemptReconciler(self.gateway, self.fleet, packages, logs, hints, BACKOFF)
        self.leases = Leases(database, self.clock, outside.callback)
        self.endpoints = endpoints
        self._admission = self._loop(AdmissionReconciler(self.fleet, hints, outside.lease_ttl_s))
        self._attempts = self._loop(attempts)
        self._logs = self._loop(LogReconciler(self.fleet, logs))
        self._clusters = self._loop(ClusterReconciler(backends, endpoints, runs_of_clusters, hints))

    @property
    def loops(self) -> tuple[Loop, ...]:
        return self._admission, self._attempts, self._logs, self._clusters

    async def prepare(self, workers: int = 8) -> "RunWorld":
        await self.blobs.prepare()
        async with self.database.write() as session:
            await self.pools.ensure_default(session, Resources(cpu=64, memory_gib=256))
            await store_cluster(session)
        await self.set_nodes("c1", workers)
        return self

    async def set_nodes(self, name: str, workers: int, dead: int = 0) -> None:
        """All healthy; the last `dead` of the workers are not."""
        async with self.database.write() as session:
            row = (await session.scalars(select(ClusterRow).where(ClusterRow.name == name))).one()
            cluster = cluster_store.cluster_of(row)
            health = Health(status=HealthStatus.HEALTHY, since=self.clock.now())
            nodes = [_node(0, is_head=True), *(_node(n, alive=n <= workers - dead) for n in range(1, workers + 1))]
            values = {"health": health, "nodes": tuple(nodes), "ray_version": "2.60.0", "python_version": "3.11.7"}
            values["can_call_back"] = True
            seen = {name: getattr(cluster, name) for name in cluster.__dataclass_fields__} | values
            columns = cluster_store.sight_columns(type(cluster)(**seen)) | {"backend": "local"}
            await session.execute(
                update(ClusterRow).where(ClusterRow.id == row.id).values(version=ClusterRow.version + 1, **columns)
            )
        self.backend.comes_up(row.id, workers + 1)

    async def submit(self, groups: tuple[TaskGroup, ...] = GROUPS, origin: Origin = Origin.API, **fields: Any) -> str:
        """One run of a job of its own; without groups a plain one."""
        target: dict[str, Any] = {"run_mode": RunMode.CLUSTER, "cluster": "c1"}
        if fields.get("run_mode") is RunMode.ON_DEMAND:
            workers = (WorkerGroup(name="w", min_instances=8, max_instances=8),)
            target = {"resource_package": "default", "resource_group": "default", "worker_groups": workers}
        command = {} if groups else {"entrypoint": "true"}
        number = len(self.gateway.sent) + self.clock.now().timestamp()
        spec = JobSpec(**{"name": f"job-{number}", "task_groups": groups, **target, **command, **fields})
        async with self.database.write() as session:
            job = (await self.jobs.create(session, ANN, spec, origin=origin)).job
        async with self.database.write() as session:
            request = RunRequest(job_id=job.id, job_revision=job.revision, spec=job.spec)
            return (await self.runs.submit(session, ANN, request)).id

    async def stop(self, run_id: str) -> None:
        async with self.database.write() as session:
            await self.runs.stop(session, ANN, run_id)

    async def admit(self) -> float | None:
        """How soon it wants to look again."""
        await self._check_memory()
        return await _step(self._admission, "queue")

    async def step(self, run_id: str, times: int = 1) -> None:
        """Of its latest attempt."""
        for _ in range(times):
            await self.step_attempt(await self.attempt_id(run_id))

    async def step_attempt(self, attempt_id: str) -> float | None:
        """How soon it wants to look again."""
        return await _step(self._attempts, attempt_id)

    async def plan(self, run_id: str) -> tuple[Any, Any]:
        """The next step of its latest attempt, acted but not applied."""
        reconciler = self._attempts.reconciler
        async with self.database.read() as session:
            snapshot = await reconciler.load(session, await self.attempt_id(run_id))
        plan = reconciler.decide(snapshot, self.clock.now())
        return plan, await reconciler.act(plan)

    async def apply_late(self, acted: tuple[Any, Any]) -> None:
        """When another has applied the same meanwhile."""
        with pytest.raises(Superseded):
            async with self.database.write() as session:
                await self._attempts.reconciler.apply(session, *acted, self.clock.now())

    async def copy_logs(self, run_id: str) -> float | None:
        return await _step(self._logs, await self.attempt_id(run_id))

    async def look_at_cluster(self, run_id: str) -> str:
        """One step of the run's own cluster; its id."""
        attempt = await self.attempt(run_id)
        await _step(self._clusters, attempt.cluster_id)
        return attempt.cluster_id

    async def node_up(self, run_id: str) -> None:
        """The first of its own cluster."""
        attempt = await self.attempt(run_id)
        self.backend.becomes(attempt.cluster_id, Observed(phase=Phase.STARTING, nodes_up=1, nodes_wanted=9))
        self.clock.pass_s(1)
        await self.look_at_cluster(run_id)

    async def own_cluster_up(self, run_id: str) -> None:
        cluster_id = await self.look_at_cluster(run_id)
        self.backend.comes_up(cluster_id, 9)
        await self.look_at_cluster(run_id)
        async with self.database.read() as session:
            row = await session.get_one(ClusterRow, cluster_id)
        await self.set_nodes(row.name, 8)

    async def settle(self, run_id: str) -> None:
        """Through collecting and releasing to the end of the latest attempt."""
        for _ in range(24):
            self.clock.pass_s(5)
            await self.copy_logs(run_id)
            await self.step(run_id)
            attempt = await self.attempt(run_id)
            if attempt.state == "ENDED":
                return
            if attempt.cluster != "c1":
                await self.look_at_cluster(run_id)
        raise AssertionError(attempt.state)

    async def sent(self, run_id: str) -> str:
        """Placed and accepted by Ray; the attempt's id."""
        await self.admit()
        if (await self.attempt(run_id)).state == "CLUSTER":
            await self.own_cluster_up(run_id)
            await self.step(run_id)
        await self.step(run_id)
        return await self.attempt_id(run_id)

    async def placing(self, run_id: str) -> str:
        """The driver runs; a gang's waits for places."""
        attempt_id = await self.sent(run_id)
        self.gateway.becomes(attempt_id, RayStatus.RUNNING, driver_address=DRIVER_AGENT)
        await self.step(run_id)
        return attempt_id

    async def running(self, run_id: str) -> str:
        attempt_id = await self.placing(run_id)
        if (await self.row(run_id)).task_groups:
            self.tell_placed(attempt_id)
            await self.step(run_id)
        return attempt_id

    def tell(self, attempt_id: str, kind: str, **facts: Any) -> None:
        """One more line of the runner's events."""
        event = {"at": self.clock.now().timestamp(), "type": kind, **facts}
        self.tell_raw(attempt_id, json.dumps(event).encode() + b"\n")

    def tell_raw(self, attempt_id: str, data: bytes) -> None:
        self.gateway.append(DRIVER_AGENT, f"{runner_folder(attempt_id)}/events.jsonl", data)

    def tell_placed(self, attempt_id: str, groups: tuple[TaskGroup, ...] = GROUPS) -> None:
        """Each task on a node of its own."""
        tasks = [(group, task) for group, one in enumerate(groups) for task in range(one.count)]
        self.tell(attempt_id, "gang_waiting", wanted=len(tasks))
        for number, (group, task) in enumerate(tasks, start=1):
            node = _node(number)
            where = {"node_id": node.id, "ip": node.ip, "host_ip": node.ip, "agent": agent(number)}
            self.tell(attempt_id, "task_placed", group=group, task=task, **where)
        self.tell(attempt_id, "gang_allocated")

    def tell_started(self, attempt_id: str, group: int, task: int) -> None:
        self.tell(attempt_id, "task_started", group=group, task=task)

    def tell_ended(self, attempt_id: str, group: int, task: int, code: int | None = 0, how: str = "exited") -> None:
        self.tell(attempt_id, "task_ended", group=group, task=task, exit_code=code, signal=None, how=how)

    def verdict(self, attempt_id: str, end_class: str, code: str, exit_code: int, **facts: Any) -> None:
        rest = {"group": None, "task": None, "params": {}, **facts}
        self.tell(attempt_id, "verdict", end_class=end_class, code=code, exit_code=exit_code, **rest)

    def over(self, attempt_id: str, exit_code: int, ended_at: datetime | None = None) -> None:
        status = RayStatus.FAILED if exit_code else RayStatus.SUCCEEDED
        self.gateway.becomes(attempt_id, status, exit_code=exit_code, ended_at=ended_at)

    async def row(self, run_id: str) -> RunRow:
        async with self.database.read() as session:
            return await session.get_one(RunRow, run_id)

    async def attempt_id(self, run_id: str) -> str:
        return submission_id(run_id, (await self.row(run_id)).epoch)

    async def attempt(self, run_id: str) -> AttemptRow:
        async with self.database.read() as session:
            return await session.get_one(AttemptRow, submission_id(run_id, (await self.row(run_id)).epoch))

    async def states(self, run_id: str) -> tuple[str, str]:
        """Of the run and its latest attempt."""
        return (await self.row(run_id)).state, (await self.attempt(run_id)).state

    async def tasks(self, run_id: str) -> dict[tuple[int, int], TaskRow]:
        async with self.database.read() as session:
            rows = await session.scalars(select(TaskRow).where(TaskRow.attempt_id == await self.attempt_id(run_id)))
            return {(row.task_group, row.task): row for row in rows}

    async def usage(self, run_id: str) -> list[UsageRow]:
        async with self.database.read() as session:
            statement = select(UsageRow).where(UsageRow.run_id == run_id).order_by(UsageRow.attempt_id)
            return list(await session.scalars(statement))

    async def report(self, run_id: str) -> RunReport:
        async with self.database.read() as session:
            return await report_one(session, await session.get_one(RunRow, run_id), self.clock.now())

    async def timeline(self, run_id: str) -> list[str]:
        async with self.database.read() as session:
            statement = select(EventRow.type).where(EventRow.target_id == run_id).order_by(EventRow.seq)
            return list(await session.scalars(statement))

    async def _check_memory(self) -> None:
        """What is remembered is what there is: whoever writes a row that is remembered raises its version."""
        async with self.database.read() as session:
            known = await load_admission(session, self.fleet, self._admission.reconciler._queue)
            there = await load_admission(session, self.fleet)
            rows = await cluster_store.rows_of(session, known.clusters)
        views = {row.id: cluster_store.view_of(cluster_store.cluster_of(row)) for row in rows}
        assert _in_order(known) == _in_order(replace(there, clusters=views))

    def _loop(self, reconciler: Reconciler[Any, Any, Any]) -> Loop:
        return Loop(reconciler, self.database, self.clock)


def agent(number: int) -> str:
    """Of the node that has this number."""
    return f"http://{_node(number).ip}:52365"


def retrying(*on: str, attempts: int = 2) -> Retry:
    return Retry(max_attempts=attempts, on=on)


def _node(number: int, *, alive: bool = True, is_head: bool = False) -> Node:
    total = Resources(memory_gib=4) if is_head else Resources(cpu=2, memory_gib=4)
    return Node(
        id=f"node-{number}", ip=f"127.0.1.{number}", group="head" if is_head else "w", alive=alive, is_head=is_head,
        total=total,
    )  # fmt: skip


def _in_order(snapshot: AdmissionSnapshot) -> AdmissionSnapshot:
    runs = tuple(sorted(snapshot.runs, key=lambda run: run.id))
    load = {key: replace(one, held=tuple(sorted(one.held, key=repr))) for key, one in snapshot.load.items()}
    return replace(snapshot, runs=runs, load=load)


async def _step(loop: Loop, key: str) -> float | None:
    try:
        return await loop._step(key)
    except Superseded:
        return 0.0
