"""A database with a few things jobs can name, and short ways to do with jobs what people do."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import ClusterRef, WorkerGroup
from kernel.actor import Actor, Role
from kernel.db import Database
from kernel.events import AuditRow, EventRow
from kernel.loop import Hints
from kernel.paging import PageRequest
from rayjobs.job_service import JobEdit, JobService, Saved
from rayjobs.job_store import JobFilter
from rayjobs.model.job import Job, JobSpec, RunMode
from rayjobs.model.run import RunState
from rayjobs.run_service import RunRequest, RunService
from rayjobs.tables import RunRow
from runtime_envs.check_uri import UriPolicy
from tests.builders.targets import (
    NOW,
    store_cluster,
    store_package,
    store_resource_group,
    store_resource_package,
)

ANN = Actor(user="ann", role=Role.SUBMITTER)
BOB = Actor(user="bob", role=Role.SUBMITTER)
OPS = Actor(user="ops", role=Role.OPERATOR)


class TickingClock:
    """Every look is a second after the one before."""

    def __init__(self) -> None:
        self._now = NOW

    def now(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now


@dataclass(frozen=True)
class World:
    database: Database
    service: JobService
    package: str

    def on_demand(self, **fields: Any) -> JobSpec:
        workers = (WorkerGroup(name="w1"),)
        defaults: dict[str, Any] = {
            "resource_package": "default",
            "resource_group": "default",
            "worker_groups": workers,
        }
        return JobSpec(
            **{"name": "train", "run_mode": RunMode.ON_DEMAND, "entrypoint": "python main.py", "package": self.package}
            | defaults
            | fields
        )

    def shared(self, name: str = "train", **fields: Any) -> JobSpec:
        defaults: dict[str, Any] = {"entrypoint": "python main.py", "package": self.package, "cluster": "c1"}
        return JobSpec(**{"name": name, "run_mode": RunMode.CLUSTER} | defaults | fields)

    async def create(self, spec: JobSpec, actor: Actor = ANN, **options: Any) -> Saved:
        async with self.database.write() as session:
            return await self.service.create(session, actor, spec, **options)

    async def edit(self, ref: str, actor: Actor = ANN, *, if_match: int | None = None, **changes: Any) -> Saved:
        async with self.database.write() as session:
            return await self.service.edit(session, actor, ref, JobEdit(changes=changes, if_match=if_match))

    async def delete(self, ref: str, actor: Actor = ANN, if_match: int | None = None) -> None:
        async with self.database.write() as session:
            await self.service.delete(session, actor, ref, if_match)

    async def get(self, ref: str) -> Job:
        async with self.database.read() as session:
            return await self.service.get(session, ref)

    async def names(self, wanted: JobFilter, sort: str = "name") -> list[str]:
        async with self.database.read() as session:
            page = await self.service.list(session, wanted, PageRequest(sort=sort))
        return [job.spec.name for job in page.items]

    async def run(self, job: Job, state: RunState = RunState.SUBMITTED) -> str:
        async with self.database.write() as session:
            run_id = (await self.submit(session, job)).id
        async with self.database.write() as session:
            await session.execute(update(RunRow).where(RunRow.id == run_id).values(state=state))
        return run_id

    async def submit(self, session: AsyncSession, job: Job) -> RunRow:
        async def cluster_id(_session: AsyncSession, _name: str) -> ClusterRef:
            return ClusterRef(id="clu_1", resource_package=None)

        request = RunRequest(job_id=job.id, job_revision=job.revision, spec=job.spec)
        return await RunService(TickingClock(), Hints(), self.service, cluster_id).submit(session, ANN, request)

    async def audited(self) -> list[tuple[str, str, str]]:
        async with self.database.read() as session:
            statement = select(AuditRow).where(AuditRow.target_type == "job").order_by(AuditRow.seq)
            return [(row.action, row.target, row.actor) for row in await session.scalars(statement)]

    async def timeline(self, job_id: str) -> list[str]:
        async with self.database.read() as session:
            statement = select(EventRow.type).where(EventRow.target_id == job_id).order_by(EventRow.seq)
            return list(await session.scalars(statement))


async def make_world(database: Database) -> World:
    async with database.write() as session:
        await store_resource_package(session)
        await store_resource_package(session, "other")
        await store_resource_group(session)
        await store_resource_group(session, "elsewhere", "other")
        await store_cluster(session)
        package = await store_package(session)
    return World(database, JobService(TickingClock(), UriPolicy()), package)
