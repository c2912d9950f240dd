"""Plain jobs on existing clusters: what can never have its place is refused like a gang (R63, A19)."""

from typing import Any

import pytest

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node, NodeSpec, WorkerGroup
from cluster_groups.model.group import Member
from kernel.db import Database
from kernel.errors import InvalidInput
from kernel.resources import Resources
from rayjobs.model.job import JobSpec, Requirements, RunMode
from tests.builders.job_world import World, make_world
from tests.builders.targets import store_cluster, store_cluster_group

HEAD = NodeSpec(cpu=2, memory_gib=4)
WORKERS = (WorkerGroup(name="w", cpu=4, memory_gib=8, gpu=2, gpu_type="H100", min_instances=1, max_instances=3),)


@pytest.fixture
async def world(database: Database) -> World:
    made = await make_world(database)
    node = Node(id="n", ip="", group=None, alive=True, is_head=False, total=Resources(cpu=2, memory_gib=4))
    async with database.write() as session:
        await store_cluster(session, "lab", ClusterState.STOPPED, head=HEAD, worker_groups=WORKERS)
        await store_cluster(session, "theirs", kind=ClusterKind.ATTACHED, nodes=[node])
        await store_cluster(session, "unseen", kind=ClusterKind.ATTACHED)
        await store_cluster_group(session, "both", Member(cluster="lab"), Member(cluster="theirs"))
        await store_cluster_group(session, "small", Member(cluster="lab", enabled=False), Member(cluster="theirs"))
        await store_cluster_group(session, "vague", Member(cluster="theirs"), Member(cluster="unseen"))
    return made


def job(world: World, target: str, **needs: Any) -> JobSpec:
    requirements = Requirements(**needs)
    if target in {"both", "small", "vague"}:
        return world.shared(
            run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group=target, requirements=requirements
        )
    return world.shared(cluster=target, requirements=requirements)


@pytest.mark.parametrize(
    ("target", "needs"),
    [
        ("lab", {"cpu": 12, "memory_gib": 28, "gpu": 6}),
        ("lab", {"gpu": 6, "gpu_types": ("A100", "H100")}),
        ("theirs", {"cpu": 2, "memory_gib": 4}),
        ("unseen", {"cpu": 1000}),
        ("both", {"cpu": 12}),
        ("vague", {"cpu": 1000}),
    ],
)
async def test_what_may_fit_one_day(world: World, target: str, needs: dict[str, Any]) -> None:
    """With all the workers it may ever have, and the memory of its head."""
    await world.create(job(world, target, **needs))


@pytest.mark.parametrize(
    ("target", "needs", "field"),
    [
        ("lab", {"cpu": 12.5}, "cpu"),
        ("lab", {"memory_gib": 29}, "memory_gib"),
        ("lab", {"gpu": 7}, "gpu"),
        ("lab", {"gpu": 1, "gpu_types": ("A100",)}, "gpu"),
        ("theirs", {"cpu": 3}, "cpu"),
        ("both", {"cpu": 13}, "cpu"),
        ("small", {"cpu": 3}, "cpu"),
    ],
)
async def test_what_never_will(world: World, target: str, needs: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await world.create(job(world, target, **needs))
    assert (caught.value.code, caught.value.pointer) == ("JOB_NEVER_FITS", f"/requirements/{field}")
    assert caught.value.params["target"] == target


async def test_what_the_driver_asks_ray_for_counts_too(world: World) -> None:
    spec = world.shared(cluster="theirs", advanced_parameters={"entrypoint_num_cpus": "3"})
    with pytest.raises(InvalidInput) as caught:
        await world.create(spec)
    assert (caught.value.code, caught.value.pointer) == ("JOB_NEVER_FITS", "/advanced_parameters/entrypoint_num_cpus")
    assert caught.value.params["wanted"] == {"cpu": 3}
    assert caught.value.params["largest"] == {"cpu": 2, "memory_gib": 4}
