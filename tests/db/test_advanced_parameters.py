"""Advanced parameters on their way: of clusters, of jobs with a cluster of their own, of jobs on another's."""

from pathlib import Path

import pytest

from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from kernel.db import Database
from kernel.errors import InvalidInput
from rayjobs.model.job import JobSpec, RunMode
from rayjobs.tables import RunRow
from tests.builders.job_world import World, make_world
from tests.builders.run_world import RunWorld


@pytest.fixture
async def world(database: Database) -> World:
    return await make_world(database)


async def test_what_local_clusters_cannot_is_refused_for_a_cluster_of_ones_own(world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        await world.create(world.on_demand(advanced_parameters={"idle_timeout_s": "60"}))
    assert caught.value.code == "ADVANCED_PARAM_NOT_ON_BACKEND"
    assert caught.value.pointer == "/advanced_parameters/idle_timeout_s"


async def test_a_cluster_of_ones_own_is_checked_with_its_nodes(world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        await world.create(world.on_demand(advanced_parameters={"object-store-memory": str(2**40)}))
    assert caught.value.code == "OBJECT_STORE_TOO_LARGE"
    await world.create(world.on_demand(advanced_parameters={"object-store-memory": str(2**30), "log_level": "info"}))


async def test_a_job_on_anothers_cluster_takes_its_nodes_as_they_are(world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        await world.create(world.shared(advanced_parameters={"object-store-memory": str(2**30)}))
    assert caught.value.code == "ADVANCED_PARAM_CLUSTER_SCOPE"


async def test_a_cluster_that_is_made_for_a_run_gets_those_of_clusters(database: Database, tmp_path: Path) -> None:
    world = await RunWorld(database, tmp_path).prepare()
    parameters = {"labels": "zone=a", "memory_usage_threshold": "0.9", "log_level": "info"}
    spec = JobSpec(
        name="train",
        run_mode=RunMode.ON_DEMAND,
        resource_package="default",
        resource_group="default",
        head=NodeSpec(),
        worker_groups=(WorkerGroup(name="w"),),
        entrypoint="true",
        advanced_parameters=parameters,
    )
    async with database.write() as session:
        cluster = await world.fleet.create_for_run(session, RunRow(id="run_1", created_by="ann"), spec)
    assert cluster.spec.advanced_parameters == {"labels": "zone=a", "memory_usage_threshold": "0.9"}
