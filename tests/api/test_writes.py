"""The unit of work of a request: dry runs and repeated keys."""

import asyncio

import httpx
import pytest
from sqlalchemy import select

from api import idempotency
from api.tables import IdempotencyRow
from api.wiring import Services
from kernel.actor import Role
from tests.api.conftest import SignIn

CI = {"name": "ci", "user": "ann", "role": "viewer"}
KEY = {"Idempotency-Key": "k-1"}


async def names(client: httpx.AsyncClient) -> list[str]:
    return [token["name"] for token in (await client.get("/tokens?sort=name")).json()["items"]]


class TestDryRun:
    async def test_stores_nothing(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/tokens?dry_run=true", json=CI, headers=KEY)
        assert (answer.status_code, answer.json()["name"]) == (200, "ci")
        assert "location" not in answer.headers
        assert await names(client) == ["admin"]
        assert (await client.post("/tokens", json=CI, headers=KEY)).status_code == 201

    async def test_finds_what_the_real_one_would(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/tokens?dry_run=true", json={**CI, "name": "admin"})
        assert (answer.status_code, answer.json()["code"]) == (409, "NAME_TAKEN")


class TestIdempotencyKey:
    async def test_a_repetition_gets_the_first_answer(self, client: httpx.AsyncClient) -> None:
        first = await client.post("/tokens", json=CI, headers=KEY)
        second = await client.post("/tokens", json=CI, headers=KEY)
        assert (first.status_code, second.status_code) == (201, 201)
        assert second.headers["idempotency-replayed"] == "true"
        assert second.headers["location"] == first.headers["location"]
        assert second.json() == {**first.json(), "secret": None}  # which is kept nowhere
        assert await names(client) == ["admin", "ci"]

    @pytest.mark.parametrize(
        ("path", "body"), [("/tokens", {**CI, "name": "other"}), ("/tokens?dry_run=false", CI)], ids=["body", "address"]
    )
    async def test_another_request_is_refused(self, client: httpx.AsyncClient, path: str, body: object) -> None:
        await client.post("/tokens", json=CI, headers=KEY)
        answer = await client.post(path, json=body, headers=KEY)
        assert (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")

    async def test_what_failed_may_be_tried_again(self, client: httpx.AsyncClient) -> None:
        await client.post("/tokens", json=CI)
        assert (await client.post("/tokens", json=CI, headers=KEY)).status_code == 409
        await client.delete("/tokens/ci")
        assert (await client.post("/tokens", json=CI, headers=KEY)).status_code == 201

    async def test_two_at_once_are_one(self, client: httpx.AsyncClient) -> None:
        requests = (client.post("/tokens", json=CI, headers=KEY) for _ in range(8))
        answers = await asyncio.gather(*requests)
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1

    async def test_keys_are_each_users_own(self, client: httpx.AsyncClient, sign_in: SignIn) -> None:
        other = await sign_in(Role.ADMIN, user="other")
        await client.post("/tokens", json=CI, headers=KEY)
        assert (await other.post("/tokens", json={**CI, "name": "mine"}, headers=KEY)).status_code == 201

    @pytest.mark.parametrize("key", ["", "k" * 201])
    async def test_keys_that_are_none(self, client: httpx.AsyncClient, key: str) -> None:
        answer = await client.post("/tokens", json=CI, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_VALUE")

    async def test_old_keys_are_forgotten(self, client: httpx.AsyncClient, services: Services) -> None:
        await client.post("/tokens", json=CI, headers=KEY)
        async with services.database.write() as session:
            now = services.clock.now()
            await idempotency.prune(session, now + idempotency.KEPT / 2)
            assert (await session.execute(select(IdempotencyRow.key))).scalars().all() == ["k-1"]
            await idempotency.prune(session, now + idempotency.KEPT * 2)
            assert (await session.execute(select(IdempotencyRow.key))).scalars().all() == []
