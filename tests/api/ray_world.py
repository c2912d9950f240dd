"""The Ray Jobs endpoint over a real database, with real packages and logs but no loops: tests move the runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from sqlalchemy import select, update

from api.app import create_app
from api.auth import TokenSpec
from api.ray_endpoint.websocket import UVICORN_OPTIONS
from api.settings import Settings
from api.wiring import Services, prepare, wire
from cluster_groups.model.cluster import Endpoint
from cluster_groups.model.group import Member
from kernel.actor import SYSTEM_ACTOR, Role
from kernel.db import Base
from rayjobs import job_store
from rayjobs.logs import LogId, LogKeeper, Source
from rayjobs.model.job import JobSpec
from rayjobs.model.run import AttemptState, End, RunState, submission_id
from rayjobs.run_store import end_to_json
from rayjobs.tables import AttemptRow, RunRow
from runtime_envs.model import PackageLimits
from runtime_envs.service import RayUploads
from tests.builders.targets import store_cluster, store_cluster_group

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
    services: Services
    app: FastAPI
    files: GrowingFile
    secrets: dict[str, str]
    """Of ann and bob, submitters, eve, a viewer, and ops, an operator."""

    def client(self, user: str = "ann", address: str = "/ray/clusters/c1", **headers: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        all_headers = {"Authorization": f"Bearer {self.secrets[user]}", **headers}
        return httpx.AsyncClient(transport=transport, base_url=f"http://muster{address}", headers=all_headers)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[str, uvicorn.Server]]:
        """By uvicorn, as `muster serve` does; gives the address and the server."""
        config = uvicorn.Config(self.app, host="127.0.0.1", port=0, log_config=None, **UVICORN_OPTIONS)
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
        async with self.services.database.read() as session:
            found = select(RunRow).where(RunRow.target == target, RunRow.client_id == client_id)
            return (await session.scalars(found)).one()

    async def spec_of(self, client_id: str, target: str = "clusters/c1") -> JobSpec:
        run = await self.run_of(client_id, target)
        async with self.services.database.read() as session:
            return (await job_store.revisions(session, run.job_id))[-run.job_revision].spec

    async def move(self, client_id: str, state: RunState, *rows: Base, **columns: Any) -> None:
        """What the loops do with a run."""
        run = await self.run_of(client_id)
        async with self.services.database.write() as session:
            await session.execute(update(RunRow).where(RunRow.id == run.id).values(state=state, **columns))
            session.add_all(rows)
        self.services.news.ring(run.id)

    async def start(self, client_id: str, epoch: int = 1) -> str:
        """One more attempt, with a driver; gives its id."""
        run, now = await self.run_of(client_id), self.services.clock.now()
        attempt_id = submission_id(run.id, epoch)
        attempt = AttemptRow(
            id=attempt_id, run_id=run.id, epoch=epoch, cluster_id=CLUSTER_ID, cluster="c1", demand={},
            state=AttemptState.RUNNING, state_since=now, created_at=now,
        )  # fmt: skip
        await self.move(client_id, RunState.RUNNING, attempt, epoch=epoch)
        return attempt_id

    async def end(self, client_id: str, end: End) -> None:
        values = {"end": end_to_json(end), "ended_at": self.services.clock.now(), "condition": None}
        await self.move(client_id, end.run_state, **values)

    async def write_log(self, attempt_id: str, data: bytes, *, is_over: bool = False) -> None:
        """More output of the driver, copied as the loop would."""
        log = LogId(attempt_id=attempt_id)
        self.files.data[log.path] = self.files.data.get(log.path, b"") + data
        source = Source(log=log, endpoint=Endpoint(address="http://127.0.0.1:1"), agent_address="")
        await self.services.logs.copy(source, is_over=is_over)


@asynccontextmanager
async def ray_world(database_url: str, folder: Path, **settings: Any) -> AsyncIterator[RayWorld]:
    services = wire(Settings(state_dir=folder, database_url=database_url, **settings))
    await prepare(services)
    files = GrowingFile()
    logs = LogKeeper(
        services.database,
        services.blobs,
        files,  # type: ignore[arg-type]  # all it asks of a gateway
        services.hints,
        max_bytes=2**20,
    )
    limits = PackageLimits(max_upload_bytes=MAX_UPLOAD_BYTES)
    uploads = RayUploads(services.database, services.blobs, services.clock, limits)
    people = {"ann": Role.SUBMITTER, "bob": Role.SUBMITTER, "eve": Role.VIEWER, "ops": Role.OPERATOR}
    async with services.database.write() as session:
        await store_cluster(session)
        await store_cluster_group(session, "g1", Member(cluster="c1"))
        tokens = [TokenSpec(name=user, user=user, role=role) for user, role in people.items()]
        secrets = {one.user: (await services.tokens.create(session, SYSTEM_ACTOR, one))[1] for one in tokens}
    services = replace(services, logs=logs, ray_uploads=uploads)
    yield RayWorld(services=services, app=create_app(services), files=files, secrets=secrets)
    await services.http.aclose()
    await services.database.close()
