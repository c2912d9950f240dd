"""What a resource group holds, and who waits for it, over HTTP (api.md §7, §13)."""

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from api.wiring import Services
from cluster_groups.model.cluster import ClusterState, NodeSpec, WorkerGroup
from rayjobs.tables import RunRow
from tests.builders.targets import store_cluster

JOB = {
    "name": "train",
    "run_mode": "on_demand",
    "resource_package": "default",
    "resource_group": "default",
    "task_groups": [{"count": 1, "entrypoint": "true"}],
}


@pytest.fixture(autouse=True)
async def quota(client: httpx.AsyncClient) -> None:
    package = {"cpu": 64, "memory_gib": 256, "gpu": {"H100": {"count": 8}}}
    await client.patch("/resource-packages/default", json={"capacity": package})
    quota = {"cpu": 32, "memory_gib": 128, "gpu": {"H100": 8}}
    changed = await client.patch("/resource-groups/default", json={"quota": quota, "queue": {"aging_s": 60}})
    assert changed.status_code == 200, changed.text


async def hold(services: Services) -> None:
    """A cluster of people's that runs, and one of a run's on its way up."""
    nodes = {"head": NodeSpec(cpu=1, memory_gib=2), "resource_group": "default"}
    workers = (WorkerGroup(name="w", cpu=4, memory_gib=16, gpu=2, gpu_type="H100", min_instances=2, max_instances=4),)
    async with services.database.write() as session:
        await store_cluster(session, "lab", ClusterState.RUNNING, worker_groups=workers, **nodes)
        small = (WorkerGroup(name="w", cpu=1, memory_gib=2),)
        await store_cluster(
            session, "run-1", ClusterState.STARTING, on_demand_run="run_1", worker_groups=small, **nodes
        )
        await store_cluster(session, "off", ClusterState.STOPPED, worker_groups=workers, **nodes)


async def test_used_and_reserved(client: httpx.AsyncClient, services: Services) -> None:
    await hold(services)
    assert (await client.get("/resource-groups/default/usage")).json() == {
        "resources": {
            "cpu": {"used": 9, "reserved": 2, "max": 32},
            "memory_gib": {"used": 34, "reserved": 4, "max": 128},
            "gpu": {"H100": {"used": 4, "reserved": 0, "max": 8}},
        },
        "clusters": [{"name": "lab", "amount": {"cpu": 9, "memory_gib": 34, "gpu": {"H100": 4}}, "is_starting": False}],
        "runs": [{"name": "run_1", "amount": {"cpu": 2, "memory_gib": 4, "gpu": {}}, "is_starting": True}],
    }


async def test_nothing_is_held_of_an_empty_one(client: httpx.AsyncClient) -> None:
    use = (await client.get("/resource-groups/default/usage")).json()
    assert (use["resources"]["cpu"], use["clusters"], use["runs"]) == ({"used": 0, "reserved": 0, "max": 32}, [], [])


async def test_the_same_as_a_metric(client: httpx.AsyncClient, services: Services) -> None:
    await hold(services)
    text = (await client.get("http://muster/metrics")).text
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    quota = [(one.labels, one.value) for one in samples if one.name == "muster_quota"]
    seen = {(labels["group"], labels["resource"], labels["kind"]): value for labels, value in quota}
    assert seen["default", "gpu.H100", "used"] == 4
    assert (seen["default", "cpu", "reserved"], seen["default", "cpu", "max"]) == (2, 32)


async def test_the_queue(client: httpx.AsyncClient, services: Services) -> None:
    await client.post("/jobs", json=JOB)
    runs = [(await client.post("/jobs/train/runs", json={"priority": priority})).json()["id"] for priority in (5, 9, 1)]
    rows = (await client.get("/resource-groups/default/queue")).json()["items"]
    assert [(row["position"], row["run"], row["job"], row["effective_priority"]) for row in rows] == [
        (1, runs[1], "train", 9),
        (2, runs[0], "train", 5),
        (3, runs[2], "train", 1),
    ]
    long_ago = services.clock.now().replace(year=2020)
    async with services.database.write() as session:
        await session.execute(update(RunRow).where(RunRow.id == runs[2]).values(enqueued_at=long_ago))
    first, *_ = (await client.get("/resource-groups/default/queue")).json()["items"]
    assert (first["run"], first["effective_priority"]) == (runs[2], 9)
    assert (await client.get(f"/runs/{runs[2]}")).json()["effective_priority"] == 9
    listed = (await client.get("/runs")).json()["items"]
    assert {run["id"]: run["effective_priority"] for run in listed} == {runs[0]: 5, runs[1]: 9, runs[2]: 9}


async def test_a_priority_changes_while_it_waits_and_the_jobs_for_later_runs(client: httpx.AsyncClient) -> None:
    """A17, A27."""
    await client.post("/jobs", json=JOB)
    first = (await client.post("/jobs/train/runs")).json()
    assert first["priority"] == 5
    assert (await client.patch(f"/runs/{first['id']}", json={"priority": 2})).json()["effective_priority"] == 2
    await client.patch("/jobs/train", json={"priority": 8})
    assert (await client.get(f"/runs/{first['id']}")).json()["priority"] == 2
    assert (await client.post("/jobs/train/runs")).json()["priority"] == 8
    await client.post(f"/runs/{first['id']}/stop")
    refused = await client.patch(f"/runs/{first['id']}", json={"priority": 3})
    assert (refused.status_code, refused.json()["code"]) == (409, "RUN_NOT_WAITING")
