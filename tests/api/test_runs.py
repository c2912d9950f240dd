"""Runs over HTTP: lists and their parts, what is said of an end and of a wait."""

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from api.wiring import Services
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP
from kernel.actor import Role
from rayjobs.model.run import AttemptState, RunState
from rayjobs.tables import AttemptRow, RunRow
from tests.api.conftest import SignIn
from tests.builders.targets import store_package

FORCED = {"class": "stopped", "code": "FORCED", "exit_code": None, "params": {}}
FAR = {"name": "far", "kind": "attached", "address": "http://127.0.0.1:9"}
JOB = {"name": "j", "run_mode": "cluster", "cluster": "far", "entrypoint": "true"}


@pytest.fixture
async def package(services: Services) -> str:
    async with services.database.write() as session:
        return await store_package(session)


@pytest.fixture
async def job(client: httpx.AsyncClient, package: str) -> str:
    await make(client, "/clusters", FAR)
    return str((await make(client, "/jobs", {**JOB, "package": package}))["id"])


async def make(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def put(services: Services, run: str, state: RunState, **columns: Any) -> None:
    async with services.database.write() as session:
        await session.execute(update(RunRow).where(RunRow.id == run).values(state=state, **columns))


async def admit(services: Services) -> None:
    """One round of admission."""
    (loop,) = [loop for loop in services.loops if loop.reconciler.name == QUEUE_LOOP]
    await loop._step(QUEUE_KEY)


class TestLists:
    async def test_several_states(self, client: httpx.AsyncClient, services: Services, job: str) -> None:
        runs = [(await make(client, f"/jobs/{job}/runs", {}))["id"] for _ in range(3)]
        for run, state in zip(runs, (RunState.RUNNING, RunState.WAITING, RunState.STOPPING), strict=True):
            await put(services, run, state)
        for query, expected in (("state=RUNNING", runs[:1]), ("state=RUNNING&state=WAITING", runs[:2]), ("", runs)):
            items = (await client.get(f"/runs?sort=created_at&{query}")).json()["items"]
            assert [item["id"] for item in items] == expected

    async def test_what_is_read_whole_comes_in_parts_on_demand(self, client: httpx.AsyncClient, job: str) -> None:
        run = (await make(client, f"/jobs/{job}/runs", {}))["id"]
        await client.post(f"/runs/{run}/stop")
        whole = (await client.get(f"/runs/{run}/events")).json()
        assert ([item["type"] for item in whole["items"]], whole["next_cursor"]) == (
            ["SUBMITTED", "STOP_REQUESTED", "STOPPED"],
            None,
        )
        first = (await client.get(f"/runs/{run}/events?limit=2")).json()
        rest = (await client.get(f"/runs/{run}/events?limit=2&cursor={first['next_cursor']}")).json()
        assert (first["items"] + rest["items"], rest["next_cursor"]) == (whole["items"], None)
        assert (await client.get(f"/runs/{run}/events?cursor=x")).json()["code"] == "INVALID_CURSOR"

    async def test_the_queue_of_a_cluster_and_of_a_cluster_group(
        self, client: httpx.AsyncClient, services: Services, job: str, package: str
    ) -> None:
        first, second = [(await make(client, f"/jobs/{job}/runs", {}))["id"] for _ in range(2)]
        held = {
            "code": "QUEUED_BEHIND",
            "owner": "platform",
            "params": {"held_on": "far"},
            "since": "2026-11-30T00:00Z",
        }
        await put(services, second, RunState.WAITING, condition=held)
        rows = (await client.get("/clusters/far/queue")).json()["items"]
        assert [(row["position"], row["run"]) for row in rows] == [(1, second), (2, first)]
        assert rows[0]["condition"]["detail"].endswith("what is free on far is kept for it until it starts.")
        await make(client, "/cluster-groups", {"name": "g", "members": [{"cluster": "far"}]})
        grouped = {**JOB, "name": "g1", "run_mode": "cluster_group", "cluster": None, "cluster_group": "g"}
        run = await make(
            client, f"/jobs/{(await make(client, '/jobs', grouped | {'package': package}))['id']}/runs", {}
        )
        assert [row["run"] for row in (await client.get("/cluster-groups/g/queue")).json()["items"]] == [run["id"]]
        assert (await client.get("/clusters/nowhere/queue")).status_code == 404


class TestTasks:
    async def test_of_one_attempt(self, client: httpx.AsyncClient, services: Services, job: str) -> None:
        run = (await make(client, f"/jobs/{job}/runs", {}))["id"]
        end = {"class": "user", "code": "EXIT_NONZERO", "exit_code": 3, "params": {}}
        now = services.clock.now()
        attempt = AttemptRow(
            id=f"{run}-a1", run_id=run, epoch=1, cluster_id="clu_1", cluster="far", demand={}, end=end,
            state=AttemptState.ENDED, state_since=now, created_at=now, started_at=now, ended_at=now,
        )  # fmt: skip
        async with services.database.write() as session:
            session.add(attempt)
        told = [(await client.get(f"/runs/{run}/tasks{query}")).json()["items"][0] for query in ("", "?attempt=1")]
        assert [(task["state"], task["exit_code"]) for task in told] == [("WAITING", None), ("FAILED", 3)]
        answer = await client.get(f"/runs/{run}/tasks?attempt=2")
        assert (answer.status_code, answer.json()["params"]) == (404, {"kind": "attempt", "ref": "2"})


class TestEnds:
    async def test_who_stopped_it_is_told(self, client: httpx.AsyncClient, sign_in: SignIn, job: str) -> None:
        run = (await make(client, f"/jobs/{job}/runs", {}))["id"]
        operator = await sign_in(Role.OPERATOR, "olga")
        end = (await operator.post(f"/runs/{run}/stop")).json()["end"]
        assert (end["code"], end["params"], end["detail"]) == ("BY_USER", {"by": "olga"}, "olga stopped the run.")

    async def test_who_took_the_cluster_away_is_told(
        self, client: httpx.AsyncClient, services: Services, sign_in: SignIn, job: str
    ) -> None:
        run = (await make(client, f"/jobs/{job}/runs", {}))["id"]
        await put(services, run, RunState.RUNNING)
        operator = await sign_in(Role.OPERATOR, "olga")
        await operator.request("DELETE", "/clusters/far", json={"force": True})
        await put(services, run, RunState.STOPPED, end=FORCED)
        end = (await client.get(f"/runs/{run}")).json()["end"]
        assert end["detail"].startswith("olga stopped or deleted the cluster with force")


async def test_the_decision_beside_a_reason_is_as_new(
    client: httpx.AsyncClient, services: Services, package: str
) -> None:
    await make(client, "/clusters", FAR)
    await make(client, "/cluster-groups", {"name": "g", "members": [{"cluster": "far"}]})
    grouped = {
        "name": "g1",
        "run_mode": "cluster_group",
        "cluster_group": "g",
        "entrypoint": "true",
        "package": package,
    }
    run = (await make(client, f"/jobs/{(await make(client, '/jobs', grouped))['id']}/runs", {}))["id"]
    for change in (None, "delete", "create"):
        if change == "delete":
            await client.delete("/clusters/far")
        elif change == "create":
            await make(client, "/clusters", FAR)
        await admit(services)
        condition = (await client.get(f"/runs/{run}")).json()["condition"]
        decisions = (await client.get(f"/runs/{run}/decisions")).json()["items"]
        told = {one["cluster"]: one["reason"] for one in decisions[-1]["candidates"]}
        assert told == condition["params"]["members"]
    assert len(decisions) == 3
