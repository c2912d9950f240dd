"""`/runner/v1`: what nodes fetch for an attempt, and who is refused."""

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from api.wiring import Services
from cluster_groups.model.cluster import Endpoint
from rayjobs.model.run import AttemptState, RunState, submission_id
from rayjobs.tables import AttemptRow, RunRow
from runtime_envs.node_plugin.terms import bearer
from tests.api.test_packages import ZIP, upload
from tests.builders.targets import NOW, store_cluster

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

TOKEN = "the-cluster's-own"
JOB = {"name": "j", "run_mode": "cluster", "cluster": "made", "entrypoint": "true"}


class Node:
    """One of the cluster on which the attempt is."""

    def __init__(self, app: FastAPI, services: Services, attempt_id: str) -> None:
        self.attempt_id = attempt_id
        self._services = services
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://muster/runner/v1")

    async def package(self, sha256: str, shown: str | None = None) -> httpx.Response:
        where = f"/packages/{sha256}.zip?attempt={self.attempt_id}"
        return await self._ask(where, shown)

    async def credentials(self, shown: str | None = None) -> httpx.Response:
        return await self._ask(f"/attempts/{self.attempt_id}/mount-credentials", shown)

    async def is_in(self, state: AttemptState) -> None:
        async with self._services.database.write() as session:
            which = AttemptRow.id == self.attempt_id
            await session.execute(update(AttemptRow).where(which).values(state=state))

    async def _ask(self, where: str, shown: str | None) -> httpx.Response:
        shown = bearer(TOKEN, self.attempt_id) if shown is None else shown
        return await self._http.get(where, headers={"Authorization": f"Bearer {shown}".encode()})


async def a_node(app: FastAPI, services: Services, client: httpx.AsyncClient, **job: Any) -> Node:
    async with services.database.write() as session:
        await store_cluster(session, "made")
    cluster_id = (await client.get("/clusters/made")).json()["id"]
    services.fleet._endpoints._known[cluster_id] = Endpoint(address="http://127.0.0.1:9", token=TOKEN)  # type: ignore[attr-defined]
    created = await client.post("/jobs", json={**JOB, **job})
    assert created.status_code == 201, created.text
    run_id = (await client.post(f"/jobs/{created.json()['id']}/runs", json={})).json()["id"]
    attempt_id = submission_id(run_id, 1)
    async with services.database.write() as session:
        await session.execute(update(RunRow).where(RunRow.id == run_id).values(state=RunState.STARTING, epoch=1))
        session.add(
            AttemptRow(
                id=attempt_id, run_id=run_id, epoch=1, cluster_id=cluster_id, cluster="made", demand={},
                state=AttemptState.POSTING, state_since=NOW, created_at=NOW,
            )
        )  # fmt: skip
    return Node(app, services, attempt_id)


async def made(client: httpx.AsyncClient, where: str, **body: Any) -> None:
    answer = await client.post(where, json=body)
    assert answer.status_code == 201, answer.text


@pytest.fixture
async def package(client: httpx.AsyncClient) -> dict[str, Any]:
    return dict((await upload(client, ZIP)).json())


@pytest.fixture
async def node(app: FastAPI, services: Services, client: httpx.AsyncClient, package: dict[str, Any]) -> Node:
    return await a_node(app, services, client, package=package["id"])


class TestPackage:
    async def test_of_the_attempt(self, node: Node, package: dict[str, Any]) -> None:
        answer = await node.package(package["sha256"])
        assert (answer.status_code, answer.content) == (200, ZIP)
        assert answer.headers["Content-Length"] == str(len(ZIP))

    async def test_of_another_job_is_not_found(self, node: Node, client: httpx.AsyncClient) -> None:
        other = (await upload(client, ZIP.replace(b"print(1)", b"print(2)"))).json()
        answer = await node.package(other.get("sha256", "0" * 64))
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")

    @pytest.mark.parametrize("sha256", ["..", "0" * 63, "x" * 64])
    async def test_what_is_no_sha256(self, node: Node, sha256: str) -> None:
        assert (await node.package(sha256)).status_code in {404, 422}


class TestCredentials:
    async def test_of_the_volumes_that_it_mounts_and_of_no_others(
        self, app: FastAPI, services: Services, client: httpx.AsyncClient, package: dict[str, Any]
    ) -> None:
        keys = {"access_key_id": "AK", "secret_access_key": "SK"}
        await made(client, "/credentials", name="keys", type="s3", data=keys)
        for name in ("mine", "theirs"):
            await made(client, "/volumes", name=name, type="s3", source={"bucket": "bucket"}, credential="keys")
        await made(client, "/volumes", name="plain", type="nfs", source={"server": "nfs.example.com"})
        mounts = [{"volume": name, "mount_path": f"/mnt/muster/{name}"} for name in ("mine", "plain")]
        node = await a_node(app, services, client, package=package["id"], mounts=mounts)
        answer = await node.credentials()
        assert answer.status_code == 200
        assert answer.json() == {"credentials": {"mine": {"key_id": "AK", "secret_key": "SK", "token": None}}}
        assert answer.headers["Cache-Control"] == "no-store"


class TestRefused:
    @pytest.mark.parametrize(
        "shown", ["", TOKEN, bearer("another cluster's", "run_1-a1"), bearer(TOKEN, "run_1-a1"), "é"]
    )
    async def test_who_is_no_node_of_its_cluster(self, node: Node, package: dict[str, Any], shown: str) -> None:
        for answer in (await node.package(package["sha256"], shown), await node.credentials(shown)):
            assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED")

    @pytest.mark.parametrize("state", ["CLUSTER", "COLLECTING", "RELEASING", "ENDED"])
    async def test_an_attempt_that_is_not_on_its_cluster(self, node: Node, package: dict[str, Any], state: str) -> None:
        await node.is_in(AttemptState(state))
        assert (await node.package(package["sha256"])).status_code == 401
        assert (await node.credentials()).status_code == 401

    async def test_one_that_nobody_knows(self, node: Node) -> None:
        node.attempt_id = "run_2-a1"
        assert (await node.credentials()).status_code == 401
