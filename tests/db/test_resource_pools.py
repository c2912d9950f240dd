"""Resource packages, and the groups cut from them, on both databases."""

from typing import Any

import pytest

from cluster_groups.model.quota import (
    ClusterUse,
    GpuCapacity,
    GroupConfig,
    GroupKind,
    PackageConfig,
    QueueSettings,
    ResourceGroup,
)
from kernel.db import Database
from kernel.errors import Conflict, MusterError, NotFound
from kernel.paging import PageRequest
from kernel.resources import Resources
from tests.builders.cluster_world import ADMIN, OPERATOR, ClusterWorld
from tests.builders.clusters import a_config

GPU = {"H100": GpuCapacity(count=8, node_selector={"gpu": "h100"}, tolerations=({"key": "gpu"},))}
PACKAGE = PackageConfig(name="p1", cpu=32, memory_gib=128, gpu=GPU)


@pytest.fixture
async def world(database: Database) -> ClusterWorld:
    world = ClusterWorld(database)
    async with database.write() as session:
        await world.pools.create_package(session, ADMIN, PACKAGE)
    return world


async def refusal(doing: Any) -> MusterError:
    with pytest.raises(MusterError) as caught:
        await doing
    return caught.value


def a_quota(name: str, cpu: float = 16, **fields: Any) -> GroupConfig:
    return GroupConfig(name=name, resource_package="p1", quota=Resources(cpu=cpu, memory_gib=8), **fields)


async def make(world: ClusterWorld, config: GroupConfig) -> ResourceGroup:
    async with world.database.write() as session:
        return await world.pools.create_group(session, OPERATOR, config)


async def change(world: ClusterWorld, ref: str, **changes: Any) -> ResourceGroup:
    async with world.database.write() as session:
        return await world.pools.edit_group(session, OPERATOR, ref, changes)


class TestPackages:
    async def test_come_back_as_they_went_in(self, world: ClusterWorld) -> None:
        async with world.database.read() as session:
            package = await world.pools.get_package(session, "p1")
            assert (await world.pools.page_of_packages(session, {}, PageRequest())).items == [package]
        assert (package.gpu, package.capacity) == (GPU, Resources(cpu=32, memory_gib=128, gpu={"H100": 8}))

    async def test_are_the_admins(self, world: ClusterWorld) -> None:
        async with world.database.write() as session:
            error = await refusal(world.pools.create_package(session, OPERATOR, PACKAGE))
        assert (error.code, error.params["required"]) == ("ROLE_REQUIRED", "admin")

    async def test_never_shrink_below_their_groups(self, world: ClusterWorld) -> None:
        await make(world, a_quota("g1"))
        await make(world, a_quota("g2"))
        async with world.database.write() as session:
            error = await refusal(world.pools.edit_package(session, ADMIN, "p1", {"cpu": 31}))
            assert (error.code, error.pointer) == ("QUOTA_EXCEEDS_PACKAGE", "/capacity/cpu")
            assert (await world.pools.edit_package(session, ADMIN, "p1", {"memory_gib": 16})).memory_gib == 16

    async def test_go_when_they_have_no_groups(self, world: ClusterWorld) -> None:
        await make(world, a_quota("g1"))
        async with world.database.write() as session:
            error = await refusal(world.pools.delete_package(session, ADMIN, "p1"))
            assert (type(error), error.code) == (Conflict, "RESOURCE_PACKAGE_IN_USE")
            await world.pools.delete_group(session, OPERATOR, "g1")
            await world.pools.delete_package(session, ADMIN, "p1")
            assert await world.pools.package_names(session) == set()


class TestGroups:
    async def test_come_back_as_they_went_in(self, world: ClusterWorld) -> None:
        group = await make(world, a_quota("g1", queue=QueueSettings(aging_s=10, reserve_after_s=None)))
        async with world.database.read() as session:
            assert await world.pools.get_group(session, group.id) == group
            assert await world.pools.groups_by_name(session) == {"g1": group}
            page = await world.pools.page_of_groups(session, {"resource_package": "p2"}, PageRequest())
        assert page.items == []

    async def test_exclusive_ones_share_the_package_out(self, world: ClusterWorld) -> None:
        await make(world, a_quota("g1", cpu=20))
        error = await refusal(make(world, a_quota("g2", cpu=13)))
        assert (error.status, error.code, error.pointer) == (422, "QUOTA_EXCEEDS_PACKAGE", "/quota/cpu")
        assert (error.params["asked"], error.params["left"]) == (13, 12)
        await make(world, a_quota("g2", cpu=12))
        assert (await refusal(change(world, "g2", quota=Resources(cpu=13)))).code == "QUOTA_EXCEEDS_PACKAGE"
        assert (await change(world, "g1", quota=Resources(cpu=19))).quota.cpu == 19

    async def test_shared_ones_fit_each_alone(self, world: ClusterWorld) -> None:
        for name in ("g1", "g2"):
            await make(world, a_quota(name, cpu=32, kind=GroupKind.SHARED))
        assert (
            await refusal(make(world, a_quota("g3", cpu=33, kind=GroupKind.SHARED)))
        ).code == "QUOTA_EXCEEDS_PACKAGE"

    async def test_of_a_gpu_type_the_package_has_not(self, world: ClusterWorld) -> None:
        config = GroupConfig(name="g1", resource_package="p1", quota=Resources(gpu={"A100": 1}))
        assert (await refusal(make(world, config))).pointer == "/quota/gpu/A100"

    @pytest.mark.parametrize(
        ("queue", "pointer"),
        [
            (QueueSettings(aging_s=9), "/queue/aging_s"),
            (QueueSettings(reserve_after_s=-1), "/queue/reserve_after_s"),
        ],
    )
    async def test_bounds_of_the_queue(self, world: ClusterWorld, queue: QueueSettings, pointer: str) -> None:
        error = await refusal(make(world, a_quota("g1", queue=queue)))
        assert (error.status, error.code, error.pointer) == (422, "VALUE_OUT_OF_RANGE", pointer)

    async def test_of_no_package(self, world: ClusterWorld) -> None:
        config = GroupConfig(name="g1", resource_package="none", quota=Resources())
        error = await refusal(make(world, config))
        assert (error.code, error.pointer) == ("REFERENCE_NOT_FOUND", "/resource_package")

    async def test_stay_in_their_package(self, world: ClusterWorld) -> None:
        await make(world, a_quota("g1"))
        error = await refusal(change(world, "g1", resource_package="p2"))
        assert (type(error), error.code) == (Conflict, "FIELD_IMMUTABLE")

    async def test_go_when_nobody_uses_them(self, world: ClusterWorld) -> None:
        await make(world, a_quota("g1"))
        await world.do("create", a_config(resource_group="g1"))
        world.users["g1"] = ["train"]
        async with world.database.write() as session:
            error = await refusal(world.pools.delete_group(session, OPERATOR, "g1"))
        assert (type(error), error.code, error.params["used_by"]) == (
            Conflict,
            "RESOURCE_GROUP_IN_USE",
            ["c1", "train"],
        )

    async def test_show_what_their_clusters_hold(self, world: ClusterWorld) -> None:
        await make(world, a_quota("g1"))
        await world.do("create", a_config("off", resource_group="g1"))
        await world.running(a_config(resource_group="g1"))
        async with world.database.read() as session:
            use = await world.pools.use_of(session, "g1")
        amount = Resources(cpu=3, memory_gib=6)
        assert (use.used, use.maximum) == (amount, Resources(cpu=16, memory_gib=8))
        assert use.clusters == (ClusterUse(cluster="c1", run=None, amount=amount),)


class TestDefault:
    async def test_is_made_once(self, database: Database) -> None:
        world = await ClusterWorld(database).with_default_pool(cpu=4, memory_gib=8)
        await world.with_default_pool(cpu=99, memory_gib=8)
        async with database.read() as session:
            assert (await world.pools.get_package(session, "default")).cpu == 4
            assert (await world.pools.get_group(session, "default")).quota == Resources(cpu=4, memory_gib=8)

    async def test_is_not_for_those_who_have_their_own(self, world: ClusterWorld) -> None:
        await world.with_default_pool()
        async with world.database.read() as session:
            assert type(await refusal(world.pools.get_package(session, "default"))) is NotFound
