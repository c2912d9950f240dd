"""Muster on a real socket before a Ray dashboard, and a stand-in for one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn
from sqlalchemy import update
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from api.auth import TokenSpec
from api.ray_endpoint.websocket import UVICORN_OPTIONS
from api.wiring import Services
from cluster_groups.model.cluster import ClusterConfig, ClusterKind, ClusterState, Endpoint
from cluster_groups.tables import ClusterRow
from kernel.actor import SYSTEM_ACTOR, Role
from runtime_envs.credentials import CredentialType, NewCredential

CLUSTER_TOKEN = "c0ffee" * 10
V1 = "/api/v1"
ROOT = f"{V1}/clusters/far/dashboard/"
PEOPLE = {"eve": Role.VIEWER, "ops": Role.OPERATOR, "root": Role.ADMIN}


@dataclass(frozen=True, kw_only=True)
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Ray:
    """Answers what it is told for a path, and keeps what it was asked."""

    answers: dict[str, Response] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        target = f"{request.url.path}?{request.url.query}".rstrip("?")
        body = await request.body()
        headers = dict(request.headers)
        self.received.append(Received(method=request.method, target=target, headers=headers, body=body))
        answer = self.answers.get(request.url.path[1:]) or PlainTextResponse("nothing here", 404)
        await answer(scope, receive, send)


@dataclass(frozen=True, kw_only=True)
class DashboardWorld:
    services: Services
    address: str
    secrets: dict[str, str]

    def client(self, user: str | None = "eve", base: str = ROOT, **headers: str) -> httpx.AsyncClient:
        """Without a user like a browser, which has no token."""
        token = {"Authorization": f"Bearer {self.secrets[user]}"} if user else {}
        return httpx.AsyncClient(base_url=self.address + base, headers=token | headers, trust_env=False, timeout=30)

    async def link(self, user: str = "eve", **headers: str) -> str:
        """The path of one, as the command line asks for it."""
        async with self.client(user, V1, **headers) as client:
            answer = await client.post("/clusters/far/dashboard-tickets")
        assert answer.status_code == 201, answer.text
        return str(answer.json()["path"])

    async def set_cluster(self, **columns: object) -> None:
        async with self.services.database.write() as session:
            await session.execute(
                update(ClusterRow).where(ClusterRow.name == "far").values(version=ClusterRow.version + 1, **columns)
            )


@asynccontextmanager
async def dashboard_world(services: Services, ray: Endpoint) -> AsyncIterator[DashboardWorld]:
    """`ray` is the cluster `far`, attached and running."""
    credential = NewCredential(name="far-token", type=CredentialType.RAY_TOKEN, data={"token": ray.token or ""})
    cluster = ClusterConfig(name="far", kind=ClusterKind.ATTACHED, address=ray.address, credential="far-token")
    tokens = [TokenSpec(name=user, user=user, role=role) for user, role in PEOPLE.items()]
    async with services.database.write() as session:
        secrets = {one.user: (await services.tokens.create(session, SYSTEM_ACTOR, one))[1] for one in tokens}
        await services.credentials.create(session, SYSTEM_ACTOR, credential)
        row = await services.clusters.create(session, SYSTEM_ACTOR, cluster)
        await session.execute(
            update(ClusterRow)
            .where(ClusterRow.id == row.id)
            .values(version=ClusterRow.version + 1, state=ClusterState.RUNNING)
        )
    async with serving(create_app(services)) as address:
        yield DashboardWorld(services=services, address=address, secrets=secrets)
    await services.dashboards.aclose()


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    config = uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_config=None, **UVICORN_OPTIONS)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
