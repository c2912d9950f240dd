"""Multi-task jobs from making to editing: what can never have its place is refused (R4, R5, R63, A19, A27)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node, NodeSpec, WorkerGroup
from cluster_groups.model.demand import PlacementStrategy
from cluster_groups.model.group import Member
from kernel.db import Database
from kernel.errors import Conflict, InvalidInput, MusterError, Problem, ValidationFailed
from kernel.resources import Resources
from rayjobs.job_service import Saved
from rayjobs.model.job import JobSpec, Requirements, RunMode, TaskGroup
from rayjobs.model.run import RunState
from rayjobs.task_groups import derive_worker_groups
from tests.builders.job_world import World, make_world
from tests.builders.targets import store_cluster, store_cluster_group, store_package

GROUPS = (
    TaskGroup(name="TaskG1", count=3, entrypoint="true"),
    TaskGroup(name="TaskG2", count=5, cpu=0.5, entrypoint="true"),
)
WIDE = (WorkerGroup(name="w", cpu=1, memory_gib=2),)
LARGE = (WorkerGroup(name="w", cpu=8, memory_gib=16, gpu=8, gpu_type="H100"),)


@pytest.fixture
async def world(database: Database) -> World:
    return await make_world(database)


def gang(*groups: TaskGroup, **fields: Any) -> JobSpec:
    """On demand unless a target is given; the head and its quota leave 6 cores and 28 GiB."""
    target = {"run_mode": RunMode.ON_DEMAND, "resource_package": "default", "resource_group": "default"}
    if "cluster" in fields or "cluster_group" in fields:
        target = {"run_mode": RunMode.CLUSTER if "cluster" in fields else RunMode.CLUSTER_GROUP}
    return JobSpec(**{"name": "gang", "task_groups": groups or GROUPS, **target, **fields})


def a_group(count: int = 1, **fields: Any) -> TaskGroup:
    return TaskGroup(count=count, entrypoint="true", **fields)


async def cluster(world: World, name: str, workers: Sequence[WorkerGroup], count: int = 1) -> None:
    sized = tuple(replace(group, min_instances=count, max_instances=count) for group in workers)
    async with world.database.write() as session:
        await store_cluster(session, name, ClusterState.STOPPED, head=NodeSpec(), worker_groups=sized)


async def attached(world: World, name: str, *nodes: Node) -> None:
    async with world.database.write() as session:
        await store_cluster(session, name, kind=ClusterKind.ATTACHED, nodes=nodes)


def a_node(name: str, *, alive: bool = True, **amounts: Any) -> Node:
    return Node(id=name, ip="", group=None, alive=alive, is_head=False, total=Resources(**amounts))


async def refused(world: World, spec: JobSpec) -> Problem:
    with pytest.raises(InvalidInput) as caught:
        await world.create(spec)
    assert not isinstance(caught.value, ValidationFailed)
    return Problem(code=caught.value.code, pointer=caught.value.pointer, params=caught.value.params)


def told(saved: Saved) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in saved.warnings]


class TestOnDemand:
    async def test_it_comes_back_with_its_worker_groups(self, world: World) -> None:
        one = a_group(2, name="Trainer_1", cpu=2, memory_gib=4, min_failed=-1)
        saved = await world.create(gang(one, placement_strategy=PlacementStrategy.PACK, gang_timeout_s=30))
        assert await world.get("gang") == saved.job
        assert saved.job.spec.task_groups == (one,)
        worker = WorkerGroup(name="trainer-1", cpu=2, memory_gib=4, min_instances=2, max_instances=2)
        assert saved.job.spec.worker_groups == (worker,)
        assert saved.warnings == []

    async def test_one_task_with_thresholds(self, world: World) -> None:
        saved = await world.create(gang(a_group(min_succeeded=1)))
        assert told(saved) == [("THRESHOLD_NOT_USED", "/task_groups/0/min_succeeded")]
        assert saved.job.spec.task_groups[0].min_succeeded == 1

    async def test_a_task_larger_than_any_node(self, world: World) -> None:
        spec = gang(a_group(name="a"), a_group(name="b", cpu=2, memory_gib=3), worker_groups=WIDE)
        found = await refused(world, spec)
        assert (found.code, found.pointer) == ("TASK_TOO_LARGE", "/task_groups/1/cpu")
        assert found.params == {
            "task_group": "b",
            "wanted": {"cpu": 2, "memory_gib": 3},
            "target": "worker_groups",
            "largest": {"cpu": 1, "memory_gib": 2},
        }

    async def test_more_tasks_than_its_nodes_can_hold(self, world: World) -> None:
        workers = (WorkerGroup(name="w", min_instances=1, max_instances=2),)
        found = await refused(world, gang(a_group(3), worker_groups=workers))
        assert (found.code, found.pointer) == ("GANG_NEVER_FITS", "/task_groups")
        numbers = {"target": "worker_groups", "fitting": 2, "wanted": 3, "strategy": "STRICT_SPREAD"}
        assert found.params == numbers
        packed = gang(a_group(3), worker_groups=workers, placement_strategy=PlacementStrategy.PACK)
        assert told(await world.create(packed)) == [("GANG_NEEDS_GROWTH", "/worker_groups")]
        two = replace(workers[0], min_instances=2)
        assert told(await world.create(replace(packed, name="b", worker_groups=(two,)))) == []

    async def test_no_more_nodes_than_the_quota_gives(self, world: World) -> None:
        workers = (WorkerGroup(name="w", cpu=1, memory_gib=2, min_instances=0, max_instances=9),)
        found = await refused(world, gang(a_group(7), worker_groups=workers))
        assert (found.code, found.params["fitting"]) == ("GANG_NEVER_FITS", 6)
        saved = await world.create(gang(a_group(6), worker_groups=workers))
        assert told(saved) == [("WORKERS_MAX_ABOVE_QUOTA", "/worker_groups"), ("GANG_NEEDS_GROWTH", "/worker_groups")]

    async def test_all_on_one_node(self, world: World) -> None:
        strategy = PlacementStrategy.STRICT_PACK
        assert (await refused(world, gang(a_group(2), placement_strategy=strategy))).code == "GANG_NEVER_FITS"
        workers = (WorkerGroup(name="w", cpu=2, memory_gib=2),)
        await world.create(gang(a_group(2), placement_strategy=strategy, worker_groups=workers))

    @pytest.mark.parametrize(
        ("group", "resource"),
        [
            (a_group(7), "cpu"),
            (a_group(2, memory_gib=15), "memory_gib"),
            (a_group(1, gpu=1, gpu_type="H100"), "gpu.H100"),
            (a_group(1, gpu=1), "gpu.GPU"),
        ],
    )
    async def test_more_than_the_quota_ever_gives(self, world: World, group: TaskGroup, resource: str) -> None:
        found = await refused(world, gang(group))
        assert (found.code, found.pointer) == ("QUOTA_NEVER_FITS", "/task_groups")
        assert list(found.params["short"]) == [resource]

    async def test_with_nodes_of_its_own_the_nodes_are_pointed_at(self, world: World) -> None:
        workers = (WorkerGroup(name="w", min_instances=8, max_instances=8),)
        assert (await refused(world, gang(worker_groups=workers))).pointer == "/worker_groups"

    async def test_growth_beyond_the_quota_is_a_warning(self, world: World) -> None:
        workers = (WorkerGroup(name="w", max_instances=7),)
        saved = await world.create(world.on_demand(worker_groups=workers))
        assert told(saved) == [("WORKERS_MAX_ABOVE_QUOTA", "/worker_groups")]
        assert saved.warnings[0].params["short"] == {"cpu": {"needed": 16, "used": 0, "max": 8}}


class TestExistingClusters:
    async def test_room_for_all_of_them(self, world: World) -> None:
        """R5: three and five tasks on eight nodes, or on fewer where they may share."""
        await cluster(world, "eight", WIDE, 8)
        await cluster(world, "six", (WorkerGroup(name="w", cpu=2, memory_gib=4),), 6)
        await world.create(gang(cluster="eight"))
        found = await refused(world, gang(name="b", cluster="six"))
        assert (found.code, found.params["fitting"], found.params["wanted"]) == ("GANG_NEVER_FITS", 6, 8)
        await world.create(gang(name="c", cluster="six", placement_strategy=PlacementStrategy.SPREAD))

    async def test_of_somebody_else_what_was_seen_counts(self, world: World) -> None:
        nodes = a_node("a", cpu=4, memory_gib=8), a_node("b", cpu=64, memory_gib=8, alive=False)
        await attached(world, "theirs", *nodes)
        await world.create(gang(a_group(cpu=4), cluster="theirs"))
        found = await refused(world, gang(a_group(cpu=5), name="b", cluster="theirs"))
        assert (found.code, found.params["largest"]["cpu"]) == ("TASK_TOO_LARGE", 4)

    async def test_nobody_knows_what_was_never_seen(self, world: World) -> None:
        await attached(world, "unseen")
        await world.create(gang(a_group(1000), cluster="unseen"))

    async def test_any_member_that_is_enabled_will_do(self, world: World) -> None:
        await cluster(world, "small", WIDE, 2)
        await cluster(world, "large", LARGE, 1)
        members = Member(cluster="small"), Member(cluster="large", enabled=False)
        async with world.database.write() as session:
            await store_cluster_group(session, "both", Member(cluster="small"), Member(cluster="large"))
            await store_cluster_group(session, "one", *members)
        await world.create(gang(a_group(cpu=8), name="a", cluster_group="both"))
        await world.create(gang(a_group(2), name="b", cluster_group="both"))
        found = await refused(world, gang(a_group(cpu=8), name="c", cluster_group="one"))
        assert (found.code, found.params["target"]) == ("TASK_TOO_LARGE", "one")
        found = await refused(world, gang(a_group(3), name="c", cluster_group="both"))
        assert (found.code, found.params["fitting"]) == ("GANG_NEVER_FITS", 2)

    @pytest.mark.parametrize(
        ("gpu_type", "accepted", "fits"),
        [("H100", (), True), ("A100", (), False), (None, ("A100",), False), (None, (), True)],
    )
    async def test_accelerators_are_of_one_type(
        self, world: World, gpu_type: str | None, accepted: tuple[str, ...], *, fits: bool
    ) -> None:
        await cluster(world, "large", LARGE)
        requirements = Requirements(gpu_types=accepted)
        spec = gang(a_group(gpu=8, gpu_type=gpu_type), cluster="large", requirements=requirements)
        if fits:
            await world.create(spec)
        else:
            assert (await refused(world, spec)).pointer == "/task_groups/0/gpu"


class TestPackages:
    async def test_each_command_beside_the_packages_only_folder(self, world: World) -> None:
        async with world.database.write() as session:
            package = await store_package(session, top_folder="app")
        beside, inside = a_group(name="a"), a_group(name="b")
        saved = await world.create(gang(beside, replace(inside, entrypoint="cd app && ./run"), package=package))
        assert told(saved) == [("SINGLE_TOP_FOLDER", "/task_groups/0/entrypoint")]


class TestEdit:
    async def test_a_command_changes_for_runs_made_later(self, world: World) -> None:
        job = (await world.create(gang(a_group(2)))).job
        await world.run(job, RunState.RUNNING)
        groups = (replace(job.spec.task_groups[0], entrypoint="python new.py"),)
        saved = await world.edit("gang", task_groups=groups)
        assert (saved.job.revision, saved.job.spec.task_groups) == (2, groups)
        assert saved.job.spec.worker_groups == job.spec.worker_groups

    @pytest.mark.parametrize(("field", "value"), [("count", 1), ("name", "b"), ("cpu", 2), ("min_failed", 2)])
    async def test_the_rest_of_a_group_is_for_a_copy(self, world: World, field: str, value: Any) -> None:
        job = (await world.create(gang(a_group(2)))).job
        with pytest.raises(Conflict) as caught:
            await world.edit("gang", task_groups=(replace(job.spec.task_groups[0], **{field: value}),))
        assert (caught.value.code, caught.value.pointer) == ("FIELD_IMMUTABLE", f"/task_groups/0/{field}")

    @pytest.mark.parametrize("changes", [{"task_groups": ()}, {"placement_strategy": "PACK"}, {"gang_timeout_s": 30}])
    async def test_so_is_the_gang(self, world: World, changes: dict[str, Any]) -> None:
        await world.create(gang(a_group(2)))
        with pytest.raises(Conflict, match="FIELD_IMMUTABLE"):
            await world.edit("gang", **changes)

    async def test_a_plain_job_gets_no_task_groups(self, world: World) -> None:
        await world.create(world.on_demand())
        with pytest.raises(Conflict, match="FIELD_IMMUTABLE"):
            await world.edit("train", task_groups=GROUPS)

    async def test_new_commands_are_checked(self, world: World) -> None:
        job = (await world.create(gang(a_group(2)))).job
        with pytest.raises(MusterError) as caught:
            await world.edit("gang", task_groups=(replace(job.spec.task_groups[0], entrypoint=" "),))
        assert (caught.value.code, caught.value.pointer) == ("ENTRYPOINT_REQUIRED", "/task_groups/0/entrypoint")
        with pytest.raises(MusterError, match="ENTRYPOINT_AND_TASK_GROUPS"):
            await world.edit("gang", entrypoint="true")

    async def test_a_copy_has_everything(self, world: World) -> None:
        job = (await world.create(gang(a_group(2)))).job
        async with world.database.read() as session:
            draft = await world.service.copy(session, "gang")
        assert draft == replace(job.spec, name="gang-copy")
        assert draft.worker_groups == derive_worker_groups(draft.task_groups)
        await world.create(draft)
