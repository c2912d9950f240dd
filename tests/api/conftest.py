"""The application over a real database, without loops: what people ask for is stored, nothing acts on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.auth import TokenSpec
from api.settings import Settings
from api.wiring import Services, prepare, wire
from kernel.actor import SYSTEM_ACTOR, Role

ADMIN_SECRET = "mst_admin-of-these-tests"
SignIn = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def services(database_url: str, tmp_path: Path) -> AsyncIterator[Services]:
    services = wire(Settings(state_dir=tmp_path, database_url=database_url, admin_token=ADMIN_SECRET))
    await prepare(services)
    yield services
    await services.database.close()


@pytest.fixture
def app(services: Services) -> FastAPI:
    return create_app(services)


@pytest.fixture
async def anonymous(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster/api/v1") as client:
        yield client


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """An administrator's."""
    async with _client(app, ADMIN_SECRET) as client:
        yield client


@pytest.fixture
async def sign_in(app: FastAPI, services: Services) -> AsyncIterator[SignIn]:
    """Makes the client of another user, who is named like the role unless `user` says else."""
    clients: list[httpx.AsyncClient] = []

    async def sign_in(role: Role, user: str | None = None, **spec: object) -> httpx.AsyncClient:
        name = user or str(role)
        token = TokenSpec(name=name, user=name, role=role, **spec)  # type: ignore[arg-type]
        async with services.database.write() as session:
            _, secret = await services.tokens.create(session, SYSTEM_ACTOR, token)
        clients.append(_client(app, secret))
        return clients[-1]

    yield sign_in
    for client in clients:
        await client.aclose()


def _client(app: FastAPI, secret: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),
        base_url="http://muster/api/v1",
        headers={"Authorization": f"Bearer {secret}"},
    )
