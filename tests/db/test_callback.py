"""Whether a cluster reaches Muster: asked where it can be told, believed for a while, and no longer than its life."""

import pytest

from cluster_groups.model.cluster import Cluster
from cluster_groups.reconcile.health import CALLBACK_HOLDS
from cluster_groups.store.clusters import view_of
from kernel.db import Database
from tests.builders.cluster_world import ClusterWorld
from tests.builders.clusters import a_config, an_attached_config
from tests.fakes.backend import FakeCallbackProbe


@pytest.fixture
async def world(database: Database) -> ClusterWorld:
    world = await ClusterWorld(database).with_default_pool()
    world.callback = FakeCallbackProbe()
    world.health_loop = world.new_health_loop()
    return world


@pytest.fixture
async def cluster(world: ClusterWorld) -> Cluster:
    return await world.running(a_config())


async def looked(world: ClusterWorld, answer: bool | None, name: str = "c1") -> bool | None:
    """What is known after one more look, at which the cluster would answer so."""
    assert world.callback
    world.callback.answer = answer
    await world.probe_once((await world.cluster(name)).id)
    return (await world.cluster(name)).can_call_back


async def test_is_unknown_until_it_is_told(world: ClusterWorld, cluster: Cluster) -> None:
    assert await looked(world, None) is None
    assert not view_of(await world.cluster("c1")).can_call_back
    assert await looked(world, answer=True) is True
    assert view_of(await world.cluster("c1")).can_call_back


@pytest.mark.parametrize("told", [True, False])
async def test_is_believed_for_a_while(world: ClusterWorld, cluster: Cluster, told: bool) -> None:
    await looked(world, told)
    world.clock.pass_s(CALLBACK_HOLDS[told].total_seconds() - 1)
    assert await looked(world, not told) is told
    world.clock.pass_s(2)
    assert await looked(world, None) is told
    assert await looked(world, not told) is not told


async def test_is_asked_again_by_a_new_process(world: ClusterWorld, cluster: Cluster) -> None:
    """Its own address may be another."""
    await looked(world, answer=True)
    world.health_loop = world.new_health_loop()
    assert await looked(world, None) is True
    assert await looked(world, answer=False) is False


async def test_of_one_life_says_nothing_of_the_next(world: ClusterWorld, cluster: Cluster) -> None:
    await looked(world, answer=True)
    await world.do("stop", "c1")
    assert (await world.cluster("c1")).can_call_back is None


async def test_nobody_is_asked_where_there_is_nowhere_to_call(world: ClusterWorld, cluster: Cluster) -> None:
    await looked(world, answer=True)
    world.callback = None
    world.health_loop = world.new_health_loop()
    await world.probe_once(cluster.id)
    assert (await world.cluster("c1")).can_call_back is None


async def test_of_one_address_says_nothing_of_another(world: ClusterWorld) -> None:
    await world.do("create", an_attached_config())
    assert await looked(world, answer=True, name="a1") is True
    await world.do("edit", "a1", {"address": "http://10.0.0.2:8265"})
    assert await looked(world, None, name="a1") is None
    assert await looked(world, answer=False, name="a1") is False
