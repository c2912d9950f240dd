"""`/runner/v1/…/lease`: whose it is, who is refused, and that a renewal is stored past the attempt's version."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from api.settings import Settings
from api.wiring import Services, prepare, wire
from rayjobs.decide.lease import RENEWABLE
from rayjobs.model.run import AttemptState, RunState, submission_id
from rayjobs.tables import AttemptRow, RunRow
from tests.api.conftest import ADMIN_SECRET
from tests.builders.targets import NOW, store_package
from tests.fakes.clock import FakeClock

TTL_S = 45
FAR = {"name": "far", "kind": "attached", "address": "http://127.0.0.1:9"}
JOB = {"name": "j", "run_mode": "cluster", "cluster": "far", "entrypoint": "true"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def services(database_url: str, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Services]:
    given: dict[str, Any] = {"admin_token": ADMIN_SECRET, "callback_url": "http://muster:8266"}
    services = wire(Settings(state_dir=tmp_path, database_url=database_url, **given), clock)
    await prepare(services)
    yield services
    await services.database.close()


class Runner:
    """The runner of one attempt; `claim` is what stands in its entrypoint."""

    def __init__(self, app: FastAPI, services: Services, attempt_id: str) -> None:
        self.attempt_id = attempt_id
        self._services = services
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://muster")
        callback = services.leases._callback
        assert callback
        self.claim = callback.terms(attempt_id).claim

    async def ask(self, who: str = "mine", **but: str) -> httpx.Response:
        """With the secret `who`."""
        asked = {"attempt_id": self.attempt_id, "claim": self.claim} | but
        path, headers = f"/runner/v1/attempts/{asked['attempt_id']}/lease", {"Authorization": f"Bearer {who}"}
        return await self._http.post(path, json={"claim": asked["claim"]}, headers=headers)

    async def row(self) -> AttemptRow:
        async with self._services.database.read() as session:
            return await session.get_one(AttemptRow, self.attempt_id)

    async def change(self, **values: Any) -> None:
        async with self._services.database.write() as session:
            await session.execute(update(AttemptRow).where(AttemptRow.id == self.attempt_id).values(**values))

    async def change_run(self, **values: Any) -> None:
        async with self._services.database.write() as session:
            run_id = (await session.get_one(AttemptRow, self.attempt_id)).run_id
            await session.execute(update(RunRow).where(RunRow.id == run_id).values(**values))


@pytest.fixture
async def job(client: httpx.AsyncClient, services: Services) -> str:
    async with services.database.write() as session:
        package = await store_package(session)
    assert (await client.post("/clusters", json=FAR)).status_code == 201
    return str((await client.post("/jobs", json={**JOB, "package": package})).json()["id"])


async def a_runner(app: FastAPI, services: Services, client: httpx.AsyncClient, job: str) -> Runner:
    run_id = (await client.post(f"/jobs/{job}/runs", json={})).json()["id"]
    attempt_id = submission_id(run_id, 1)
    async with services.database.write() as session:
        await session.execute(update(RunRow).where(RunRow.id == run_id).values(state=RunState.RUNNING, epoch=1))
        session.add(
            AttemptRow(
                id=attempt_id, run_id=run_id, epoch=1, cluster_id="clu_1", cluster="far", demand={},
                state=AttemptState.RUNNING, state_since=NOW, created_at=NOW, lease_ttl_s=TTL_S,
            )
        )  # fmt: skip
    return Runner(app, services, attempt_id)


@pytest.fixture
async def runner(app: FastAPI, services: Services, client: httpx.AsyncClient, job: str) -> Runner:
    return await a_runner(app, services, client, job)


class TestRenewal:
    async def test_tells_the_term_and_stores_its_end(self, runner: Runner, clock: FakeClock) -> None:
        answer = await runner.ask()
        assert (answer.status_code, answer.json()) == (200, {"ttl_s": TTL_S})
        assert (await runner.row()).lease_until == clock.now() + timedelta(seconds=TTL_S)
        clock.pass_s(15)
        assert (await runner.ask()).status_code == 200
        assert (await runner.row()).lease_until == clock.now() + timedelta(seconds=TTL_S)

    async def test_goes_past_the_version(self, runner: Runner) -> None:
        version = (await runner.row()).version
        await runner.ask()
        assert (await runner.row()).version == version

    async def test_of_many_at_once(
        self, app: FastAPI, services: Services, client: httpx.AsyncClient, job: str, runner: Runner
    ) -> None:
        """One that is refused spoils nothing for the others."""
        runners = [runner, *[await a_runner(app, services, client, job) for _ in range(20)]]
        await runners[3].change(state=AttemptState.COLLECTING)
        answers = await asyncio.gather(*(one.ask() for one in runners))
        assert [answer.status_code for answer in answers] == [409 if n == 3 else 200 for n in range(21)]
        assert [(await one.row()).lease_until is None for one in runners] == [n == 3 for n in range(21)]


class TestRefused:
    @pytest.mark.parametrize("state", sorted(set(AttemptState) - RENEWABLE))
    async def test_in_a_state(self, runner: Runner, state: AttemptState) -> None:
        await runner.ask()
        before = (await runner.row()).lease_until
        await runner.change(state=state)
        answer = await runner.ask()
        assert (answer.status_code, answer.json()["code"]) == (409, "LEASE_REFUSED")
        assert (await runner.row()).lease_until == before

    @pytest.mark.parametrize("state", [AttemptState.POSTING, AttemptState.PENDING, AttemptState.PLACING])
    async def test_not_before_it_runs(self, runner: Runner, state: AttemptState) -> None:
        await runner.change(state=state)
        assert (await runner.ask()).status_code == 200

    async def test_once_another_attempt_is_under_way(self, runner: Runner) -> None:
        await runner.change_run(epoch=2)
        assert (await runner.ask()).status_code == 409

    async def test_once_its_stop_was_asked_for_before_it_began(self, runner: Runner) -> None:
        await runner.change_run(stop_code="BY_USER", state=RunState.STOPPING)
        assert (await runner.ask()).status_code == 409

    async def test_what_has_begun_has_its_grace_as_long_as_its_cluster_is_told(self, runner: Runner) -> None:
        await runner.ask()
        await runner.change_run(stop_code="BY_USER", state=RunState.STOPPING)
        assert (await runner.ask()).status_code == 200
        await runner.change(lost_since=NOW)
        assert (await runner.ask()).status_code == 409

    async def test_without_a_term(self, runner: Runner) -> None:
        await runner.change(lease_ttl_s=None)
        assert (await runner.ask()).status_code == 409


class TestWhose:
    async def test_the_claim_serves_once(self, runner: Runner) -> None:
        """Whoever reads it in Ray's list of jobs later can do nothing with it."""
        assert (await runner.ask("mine")).status_code == 200
        before = (await runner.row()).lease_until
        assert (await runner.ask("another's")).status_code == 401
        assert (await runner.row()).lease_until == before
        assert (await runner.ask("mine", claim="")).status_code == 200

    async def test_of_two_who_claim_at_once_one_has_it(self, runner: Runner) -> None:
        answers = await asyncio.gather(*(runner.ask(f"secret {n}") for n in range(8)))
        assert sorted(answer.status_code for answer in answers) == [200, *[401] * 7]

    async def test_nobody_is_known_without_a_claim(self, runner: Runner) -> None:
        for claim in ("", "0" * 32):
            assert (await runner.ask(claim=claim)).status_code == 401
        assert (await runner.row()).runner_token_hash is None

    async def test_no_attempt_takes_anothers(
        self, app: FastAPI, services: Services, client: httpx.AsyncClient, job: str, runner: Runner
    ) -> None:
        other = await a_runner(app, services, client, job)
        await runner.ask()
        assert (await runner.ask(attempt_id=other.attempt_id)).status_code == 401

    async def test_peoples_tokens_do_not_help(self, runner: Runner) -> None:
        await runner.ask()
        assert (await runner.ask(ADMIN_SECRET)).status_code == 401

    async def test_unknown_attempts_look_like_foreign_ones(self, runner: Runner) -> None:
        assert (await runner.ask(attempt_id="run_x-a1")).status_code == 401

    async def test_the_secret_is_not_stored(self, runner: Runner) -> None:
        await runner.ask("mine")
        assert "mine" not in str((await runner.row()).runner_token_hash)
