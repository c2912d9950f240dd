"""Jobs from making to deleting: R38, R63-R68, A24-A31, on both databases."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.group import Member
from kernel.actor import Role
from kernel.db import Database
from kernel.errors import (
    Conflict,
    Denied,
    InvalidInput,
    MusterError,
    NotFound,
    Problem,
    StaleRevision,
    ValidationFailed,
)
from kernel.ids import new_id
from rayjobs import job_store
from rayjobs.job_service import JobEdit, JobService
from rayjobs.job_store import JobFilter
from rayjobs.model.job import JobSpec, Origin, Requirements, RunMode
from rayjobs.model.run import RunState
from rayjobs.tables import RunRow
from runtime_envs.check_uri import UriPolicy
from runtime_envs.volumes.model import Mount
from tests.builders.job_world import ANN, BOB, OPS, TickingClock, World, make_world
from tests.builders.targets import NOW, store_cluster, store_cluster_group, store_package


@pytest.fixture
async def world(database: Database) -> World:
    return await make_world(database)


def codes(problems: Sequence[Problem]) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in problems]


def refusal(error: MusterError) -> tuple[str, str | None]:
    return error.code, error.pointer


class TestCreate:
    async def test_it_is_there_afterwards_with_defaults_filled_in(self, world: World) -> None:
        saved = await world.create(world.on_demand(tags={"team": "视觉"}, name="训练 1"))
        assert await world.get("训练 1") == saved.job == await world.get(saved.job.id)
        assert (saved.job.revision, saved.job.created_by, saved.job.spec.priority) == (1, "ann", 5)
        assert saved.job.spec.head is not None
        assert saved.warnings == []
        assert await world.audited() == [("create", "训练 1", "ann")]
        assert await world.timeline(saved.job.id) == ["CREATED"]

    async def test_several_problems_come_together(self, world: World) -> None:
        with pytest.raises(ValidationFailed) as caught:
            await world.create(world.shared("", entrypoint="", cluster=None))
        assert codes(caught.value.problems) == [
            ("NAME_REQUIRED", "/name"),
            ("CLUSTER_REQUIRED", "/cluster"),
            ("ENTRYPOINT_REQUIRED", "/entrypoint"),
        ]

    async def test_a_taken_name(self, world: World) -> None:
        await world.create(world.shared())
        with pytest.raises(Conflict) as caught:
            await world.create(world.shared(), BOB)
        assert refusal(caught.value) == ("NAME_TAKEN", "/name")

    async def test_two_who_take_one_name_at_once(self, world: World) -> None:
        saved = await world.create(world.shared())
        with pytest.raises(Conflict) as caught:
            async with world.database.write() as session:
                await job_store.insert(session, replace(saved.job, id=new_id("job")))
        assert refusal(caught.value) == ("NAME_TAKEN", "/name")

    async def test_a_hidden_job_is_named_by_its_id_and_needs_no_package(self, world: World) -> None:
        saved = await world.create(world.shared("raysubmit/1", package=None), origin=Origin.RAY_JOBS)
        assert saved.job.spec.name == saved.job.id
        assert await world.get(saved.job.id) == saved.job
        await world.create(world.shared("raysubmit/1", package=None), origin=Origin.RAY_JOBS)

    async def test_viewers_do_not_make_jobs(self, world: World) -> None:
        with pytest.raises(Denied, match="ROLE_REQUIRED"):
            await world.create(world.shared(), replace(ANN, role=Role.VIEWER))


class TestReferences:
    @pytest.mark.parametrize(
        ("fields", "pointer"),
        [
            ({"resource_package": "nope"}, "/resource_package"),
            ({"resource_group": "nope"}, "/resource_group"),
            ({"resource_group": "no\0pe"}, "/resource_group"),
            ({"package": "pkg_nope"}, "/package"),
            ({"package": new_id("pkg")}, "/package"),
            ({"package": "\0"}, "/package"),
            ({"mounts": (Mount(volume="v", mount_path="/data"),)}, "/mounts/0/volume"),
        ],
    )
    async def test_what_an_on_demand_job_names(self, world: World, fields: dict[str, Any], pointer: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            await world.create(world.on_demand(**fields))
        found = caught.value.problems if isinstance(caught.value, ValidationFailed) else []
        first = codes(found)[0] if found else refusal(caught.value)
        assert first == ("REFERENCE_NOT_FOUND", pointer)

    async def test_a_group_of_another_package(self, world: World) -> None:
        with pytest.raises(InvalidInput) as caught:
            await world.create(world.on_demand(resource_group="elsewhere"))
        assert refusal(caught.value) == ("RESOURCE_GROUP_NOT_IN_PACKAGE", "/resource_group")

    @pytest.mark.parametrize("name", ["nope", "no\0pe", "for-a-run", "gone"])
    async def test_clusters_that_cannot_be_named(self, world: World, name: str) -> None:
        async with world.database.write() as session:
            await store_cluster(session, "for-a-run", on_demand_run="run_1")
            await store_cluster(session, "gone", ClusterState.DELETED)
        with pytest.raises(InvalidInput) as caught:
            await world.create(world.shared(cluster=name))
        assert refusal(caught.value) == ("REFERENCE_NOT_FOUND", "/cluster")

    async def test_a_cluster_that_is_not_running(self, world: World) -> None:
        async with world.database.write() as session:
            await store_cluster(session, "c2", ClusterState.STOPPED)
        saved = await world.create(world.shared(cluster="c2"))
        assert codes(saved.warnings) == [("TARGET_NOT_RUNNING", "/cluster")]
        assert saved.warnings[0].params == {"cluster": "c2", "state": "STOPPED"}

    async def test_cluster_groups(self, world: World) -> None:
        async with world.database.write() as session:
            await store_cluster_group(session, "full", Member(cluster="c1"))
            await store_cluster_group(session, "idle", Member(cluster="c1", enabled=False))
        spec = replace(world.shared(), run_mode=RunMode.CLUSTER_GROUP, cluster=None)
        assert (await world.create(replace(spec, name="a", cluster_group="full"))).warnings == []
        saved = await world.create(replace(spec, name="b", cluster_group="idle"))
        assert codes(saved.warnings) == [("GROUP_EMPTY", "/cluster_group")]
        with pytest.raises(InvalidInput) as caught:
            await world.create(replace(spec, name="c", cluster_group="nope"))
        assert refusal(caught.value) == ("REFERENCE_NOT_FOUND", "/cluster_group")

    async def test_a_command_beside_the_packages_only_folder(self, world: World) -> None:
        async with world.database.write() as session:
            package = await store_package(session, top_folder="app")
        saved = await world.create(world.shared("beside", package=package))
        assert codes(saved.warnings) == [("SINGLE_TOP_FOLDER", "/entrypoint")]
        inside = world.shared("inside", package=package, entrypoint="cd app && python main.py")
        assert (await world.create(inside)).warnings == []


class TestPreconditions:
    """R38: each missing one has an error of its own."""

    async def test_no_resource_package_yet(self, database: Database) -> None:
        async with database.write() as session:
            await store_cluster(session)
            world = World(database, JobService(TickingClock(), UriPolicy()), await store_package(session))
        with pytest.raises(Conflict, match="SERVICE_NOT_OPENED"):
            await world.create(world.on_demand(resource_package=None))
        await world.create(world.shared())

    async def test_no_grant_at_all(self, world: World) -> None:
        for spec in (world.on_demand(), world.shared()):
            with pytest.raises(Denied, match="NOT_ALLOW_LISTED"):
                await world.create(spec, replace(ANN, resource_packages=()))

    async def test_no_grant_for_this_package(self, world: World) -> None:
        limited = replace(ANN, resource_packages=("other",))
        with pytest.raises(Denied) as caught:
            await world.create(world.on_demand(), limited)
        assert caught.value.code == "RESOURCE_PACKAGE_DENIED"
        assert caught.value.params["resource_package"] == "default"
        await world.create(world.on_demand(resource_package="other", resource_group="elsewhere"), limited)

    async def test_a_cluster_is_part_of_its_package(self, world: World) -> None:
        async with world.database.write() as session:
            await store_cluster(session, "bought", resource_package="default")
        with pytest.raises(Denied, match="RESOURCE_PACKAGE_DENIED"):
            await world.create(world.shared(cluster="bought"), replace(ANN, resource_packages=("other",)))
        await world.create(world.shared(cluster="bought"))


class TestEdit:
    async def test_it_makes_a_revision_and_keeps_the_old_one(self, world: World) -> None:
        job = (await world.create(world.on_demand())).job
        saved = await world.edit("train", entrypoint="python b.py", tags={"a": "b"}, priority=9, description="x")
        assert saved.job == await world.get("train")
        assert (saved.job.revision, saved.job.spec.entrypoint, saved.job.spec.priority) == (2, "python b.py", 9)
        async with world.database.read() as session:
            revisions = await world.service.revisions(session, job.id)
        assert [(one.revision, one.created_by) for one in revisions] == [(2, "ann"), (1, "ann")]
        assert [one.spec for one in revisions] == [saved.job.spec, job.spec]
        assert await world.audited() == [("create", "train", "ann"), ("edit", "train", "ann")]
        assert await world.timeline(job.id) == ["CREATED", "EDITED"]

    async def test_without_a_difference_there_is_no_revision(self, world: World) -> None:
        job = (await world.create(world.on_demand())).job
        saved = await world.edit("train", name="train", entrypoint=job.spec.entrypoint, priority=None)
        assert saved.job == job == await world.get("train")
        assert len(await world.audited()) == 1

    async def test_two_in_one_unit_of_work(self, world: World) -> None:
        await world.create(world.shared())
        async with world.database.write() as session:
            for words in ("x", "y"):
                await world.service.edit(session, ANN, "train", JobEdit(changes={"description": words}))
            job = await world.service.get(session, "train")
        assert (job.revision, job.spec.description) == (3, "y")
        assert await world.get("train") == job

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("name", "b"),
            ("run_mode", RunMode.ON_DEMAND),
            ("cluster", "c2"),
            ("start_timeout_s", 60),
            ("advanced_parameters", {"log_level": "info"}),
            ("requirements", Requirements(cpu=1)),
            ("retry_safe", True),
        ],
    )
    async def test_the_rest_is_for_a_copy(self, world: World, field: str, value: Any) -> None:
        await world.create(world.shared())
        with pytest.raises(Conflict) as caught:
            await world.edit("train", description="x", **{field: value})
        assert refusal(caught.value) == ("FIELD_IMMUTABLE", f"/{field}")
        assert caught.value.params == {"fields": [field]}

    async def test_what_it_changes_is_checked(self, world: World) -> None:
        await world.create(world.shared())
        for changes, refused in (
            ({"priority": 5}, ("FIELD_NOT_FOR_MODE", "/priority")),
            ({"entrypoint": ""}, ("ENTRYPOINT_REQUIRED", "/entrypoint")),
            ({"package": new_id("pkg")}, ("REFERENCE_NOT_FOUND", "/package")),
            ({"mounts": (Mount(volume="v", mount_path="/v"),)}, ("REFERENCE_NOT_FOUND", "/mounts/0/volume")),
            ({"mounts": (Mount(volume="v", mount_path="/etc"),)}, ("MOUNT_PATH_RESERVED", "/mounts/0/mount_path")),
            ({"runtime_env": {"env_vars": {"PATH": "x"}}}, ("RESERVED_VARIABLE", "/runtime_env/env_vars/PATH")),
        ):
            with pytest.raises(InvalidInput) as caught:
                await world.edit("train", **changes)
            assert refusal(caught.value) == refused

    async def test_what_it_leaves_alone_may_have_gone(self, world: World) -> None:
        await world.create(world.shared())
        async with world.database.write() as session:
            await session.execute(text("UPDATE clusters SET state = 'DELETED'"))
        assert (await world.edit("train", description="x")).job.revision == 2

    async def test_whose_it_is(self, world: World) -> None:
        await world.create(world.shared())
        with pytest.raises(Denied, match="NOT_YOURS"):
            await world.edit("train", BOB, description="x")
        assert (await world.edit("train", OPS, description="x")).job.created_by == "ann"

    async def test_if_match(self, world: World) -> None:
        await world.create(world.shared())
        await world.edit("train", if_match=1, description="x")
        with pytest.raises(StaleRevision) as caught:
            await world.edit("train", if_match=1, description="y")
        assert caught.value.params == {"revision": 2}

    async def test_two_at_once_do_not_overwrite_each_other(self, world: World) -> None:
        job = (await world.create(world.shared())).job
        async with world.database.read() as session:
            stale = await job_store.find_row(session, "train")
        await world.edit("train", description="first")
        with pytest.raises(StaleRevision) as caught:
            async with world.database.write() as session:
                await job_store.update(session, stale, replace(job, revision=2), at=NOW, by="bob")
        assert caught.value.params == {"revision": 2}
        assert (await world.get("train")).spec.description == "first"


class TestCopy:
    async def copied(self, world: World, ref: str) -> JobSpec:
        async with world.database.read() as session:
            return await world.service.copy(session, ref)

    async def test_all_but_the_name(self, world: World) -> None:
        job = (await world.create(world.on_demand(tags={"a": "b"}, runtime_env={"pip": ["emoji"]}))).job
        draft = await self.copied(world, "train")
        assert draft == replace(job.spec, name="train-copy")
        assert await world.names(JobFilter()) == ["train"]
        assert (await world.create(draft)).job.spec == draft

    async def test_the_next_free_name(self, world: World) -> None:
        for name in ("train", "train-copy", "train-copy-2", "train-copy-4"):
            await world.create(world.shared(name))
        assert (await self.copied(world, "train")).name == "train-copy-3"
        await world.delete("train-copy")
        assert (await self.copied(world, "train")).name == "train-copy"

    async def test_a_name_of_full_length(self, world: World) -> None:
        await world.create(world.shared("x" * 100))
        draft = await self.copied(world, "x" * 100)
        assert draft.name == "x" * 95 + "-copy"
        assert (await world.create(draft)).job.spec.name == draft.name


class TestDelete:
    async def test_it_is_gone_but_its_history_stays(self, world: World) -> None:
        job = (await world.create(world.shared())).job
        run = await world.run(job, RunState.SUCCEEDED)
        await world.delete(job.id)
        for ref in ("train", job.id):
            with pytest.raises(NotFound):
                await world.get(ref)
        async with world.database.read() as session:
            assert [one.spec for one in await job_store.revisions(session, job.id)] == [job.spec]
            assert await session.get(RunRow, run) is not None
        assert await world.timeline(job.id) == ["CREATED", "DELETED"]
        assert (await world.create(world.shared())).job.id != job.id

    @pytest.mark.parametrize("state", [RunState.SUBMITTED, RunState.WAITING, RunState.RUNNING, RunState.STOPPING])
    async def test_not_while_a_run_is_not_over(self, world: World, state: RunState) -> None:
        job = (await world.create(world.shared())).job
        run = await world.run(job, state)
        await world.run(job, RunState.FAILED)
        with pytest.raises(Conflict) as caught:
            await world.delete("train")
        assert caught.value.code == "JOB_HAS_ACTIVE_RUNS"
        assert caught.value.params == {"job": "train", "count": 1, "runs": [run]}
        assert await world.get("train") == job

    async def test_whose_it_is_and_if_match(self, world: World) -> None:
        await world.create(world.shared())
        with pytest.raises(Denied, match="NOT_YOURS"):
            await world.delete("train", BOB)
        with pytest.raises(StaleRevision):
            await world.delete("train", if_match=2)
        await world.delete("train", OPS, if_match=1)
        assert ("delete", "train", "ops") in await world.audited()
