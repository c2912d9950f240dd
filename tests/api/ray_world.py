"""The Ray Jobs endpoint over a real database, with real packages and logs but no loops: tests move the runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.applications import Starlette
from starlette.routing import Mount

from api.auth import Tokens, TokenSpec
from api.ray_endpoint.routes import ray_endpoint
from api.ray_endpoint.websocket import UVICORN_OPTIONS
from api.settings import Settings
from api.streaming import News
from cluster_groups.model.cluster import Endpoint
from cluster_groups.model.group import Member
from kernel.actor import SYSTEM_ACTOR, Role
from kernel.clock import Clock, SystemClock
from kernel.db import Database
from kernel.loop import Hints
from rayjobs import job_store
from rayjobs.job_service import JobService
from rayjobs.logs import LogKeeper, Source
from rayjobs.model.job import JobSpec
from rayjobs.model.run import AttemptState, End, RunState, submission_id
from rayjobs.run_service import RunService
from rayjobs.run_store import end_to_json
from rayjobs.tables import AttemptRow, RunRow
from runtime_envs.check_uri import UriPolicy
from runtime_envs.model import PackageLimits
from runtime_envs.packages.local import LocalBlobStore
from runtime_envs.service import RayUploads
from tests.builders.targets import store_cluster, store_cluster_group, store_resource_group, store_resource_package

CLUSTER_ID = "clu_01"
MAX_UPLOAD_BYTES = 2**20


class GrowingFile:
    """The driver's log file as a node agent serves it."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    async def read_log(self, _endpoint: Endpoint, _agent: str, path: str, *, offset: int, limit_bytes: int) -> bytes:
        return self.data[path][offset : offset + limit_bytes]


@dataclass(frozen=True, kw_only=True)
class RayWorld:
    settings: Settings
    database: Database
    clock: Clock
    hints: Hints
    news: News
    tokens: Tokens
    jobs: JobService
    runs: RunService
    logs: LogKeeper
    ray_uploads: RayUploads
    files: GrowingFile
    secrets: dict[str, str] = field(default_factory=dict)

    def app(self) -> Starlette:
        return Starlette(routes=[Mount("/ray", ray_endpoint(self))])

    def client(self, user: str = "ann", address: str = "/ray/clusters/c1", **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app(), raise_app_exceptions=False)
        all_headers = {"Authorization": f"Bearer {self.secrets[user]}", **headers}
        return httpx.AsyncClient(transport=transport, base_url=f"http://muster{address}", headers=all_headers)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[str, uvicorn.Server]]:
        """By uvicorn, as `muster serve` does; gives the address and the server."""
        config = uvicorn.Config(self.app(), host="127.0.0.1", port=0, log_config=None, **UVICORN_OPTIONS)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{port}/ray/clusters/c1", server
        finally:
            server.should_exit = True
            await serving

    async def run_of(self, client_id: str, target: str = "clusters/c1") -> RunRow:
        async with self.database.read() as session:
            found = select(RunRow).where(RunRow.target == target, RunRow.client_id == client_id)
            return (await session.scalars(found)).one()

    async def spec_of(self, client_id: str, target: str = "clusters/c1") -> JobSpec:
        run = await self.run_of(client_id, target)
        async with self.database.read() as session:
            return await job_store.load_spec(session, run.job_id, run.job_revision)

    async def move(self, client_id: str, state: RunState, **columns: Any) -> RunRow:
        """What the loops do with a run's row."""
        run = await self.run_of(client_id)
        async with self.database.write() as session:
            await session.execute(update(RunRow).where(RunRow.id == run.id).values(state=state, **columns))
        self.news.ring(run.id)
        return await self.run_of(client_id)

    async def start(self, client_id: str, epoch: int = 1) -> str:
        """One more attempt, with a driver; gives its id."""
        run = await self.move(client_id, RunState.RUNNING, epoch=epoch)
        now = self.clock.now()
        attempt_id = submission_id(run.id, epoch)
        async with self.database.write() as session:
            session.add(
                AttemptRow(
                    id=attempt_id, run_id=run.id, epoch=epoch, cluster_id=CLUSTER_ID, cluster="c1", demand={},
                    state=AttemptState.RUNNING, state_since=now, created_at=now,
                )
            )  # fmt: skip
        return attempt_id

    async def end(self, client_id: str, end: End) -> None:
        values = {"end": end_to_json(end), "ended_at": self.clock.now(), "condition": None}
        await self.move(client_id, end.run_state, **values)

    async def write_log(self, attempt_id: str, data: bytes, *, is_over: bool = False) -> None:
        """More output of the driver, copied as the loop would."""
        self.files.data[attempt_id] = self.files.data.get(attempt_id, b"") + data
        endpoint = Endpoint(address="http://127.0.0.1:1")
        source = Source(attempt_id=attempt_id, endpoint=endpoint, agent_address="", path=attempt_id)
        await self.logs.copy(source, is_over=is_over)


async def make_ray_world(database: Database, folder: Path, **settings: Any) -> RayWorld:
    clock, hints, files = SystemClock(), Hints(), GrowingFile()
    blobs = LocalBlobStore(folder / "blobs")
    await blobs.prepare()
    jobs = JobService(clock, UriPolicy())
    limits = PackageLimits(max_upload_bytes=MAX_UPLOAD_BYTES)
    world = RayWorld(
        settings=Settings(state_dir=folder, **settings),
        database=database,
        clock=clock,
        hints=hints,
        news=News(),
        tokens=Tokens(database, clock),
        jobs=jobs,
        runs=RunService(clock, hints, jobs, _cluster_id),
        logs=LogKeeper(database, blobs, files, hints, max_bytes=2**20),  # type: ignore[arg-type] - all it asks of one
        ray_uploads=RayUploads(database, blobs, clock, limits),
        files=files,
    )
    async with database.write() as session:
        await store_resource_package(session)
        await store_resource_group(session)
        await store_cluster(session)
        await store_cluster_group(session, "g1", Member(cluster="c1"))
    people = {"ann": Role.SUBMITTER, "bob": Role.SUBMITTER, "eve": Role.VIEWER, "ops": Role.OPERATOR}
    for user, role in people.items():
        async with database.write() as session:
            spec = TokenSpec(name=user, user=user, role=role)
            world.secrets[user] = (await world.tokens.create(session, SYSTEM_ACTOR, spec))[1]
    return world


async def _cluster_id(_session: AsyncSession, _name: str) -> str:
    return CLUSTER_ID
