"""Finding jobs: names, filters, pages, counts of runs (R64, A24, A34), on both databases."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text

from cluster_groups.model.group import Member
from kernel.db import Database
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.paging import PageRequest
from rayjobs import job_store
from rayjobs.job_store import JobFilter
from rayjobs.model.job import Origin, RunCounts, RunMode
from rayjobs.model.run import RunState
from tests.builders.job_world import ANN, BOB, World, make_world
from tests.builders.targets import NOW, store_cluster_group, store_package


@pytest.fixture
async def world(database: Database) -> World:
    return await make_world(database)


@pytest.fixture
async def several(world: World) -> World:
    """c: on_demand; b: cluster c1, BOB's, with another package; a: cluster group g1; and a hidden one."""
    async with world.database.write() as session:
        await store_cluster_group(session, "g1", Member(cluster="c1"))
        other = await store_package(session)
    await world.create(world.on_demand(name="c", tags={"team": "vision", "级别": "高"}))
    await world.create(world.shared("b", package=other, tags={"team": "speech"}), BOB)
    await world.create(world.shared("a", run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="g1"))
    await world.create(world.shared(package=None), origin=Origin.RAY_JOBS)
    return world


class TestFilters:
    @pytest.mark.parametrize(
        ("wanted", "names"),
        [
            (JobFilter(), ["a", "b", "c"]),
            (JobFilter(name="b"), ["b"]),
            (JobFilter(name="B"), []),
            (JobFilter(run_mode="cluster"), ["b"]),
            (JobFilter(created_by="bob"), ["b"]),
            (JobFilter(cluster="c1"), ["b"]),
            (JobFilter(cluster_group="g1"), ["a"]),
            (JobFilter(resource_group="default"), ["c"]),
            (JobFilter(tag="team:vision"), ["c"]),
            (JobFilter(tag="级别:高"), ["c"]),
            (JobFilter(tag="team:"), []),
            (JobFilter(tag='te"am:vision'), []),
            (JobFilter(tag="team:vision", created_by="bob"), []),
            (JobFilter(name="a\0"), []),
        ],
    )
    async def test_by_field(self, several: World, wanted: JobFilter, names: list[str]) -> None:
        assert await several.names(wanted) == names

    async def test_by_package(self, several: World) -> None:
        assert await several.names(JobFilter(package=several.package)) == ["a", "c"]

    async def test_they_follow_the_current_revision(self, several: World) -> None:
        await several.edit("c", tags={"team": "speech"})
        assert await several.names(JobFilter(tag="team:vision")) == []
        assert await several.names(JobFilter(tag="team:speech")) == ["b", "c"]

    async def test_hidden_jobs_only_when_asked_for(self, several: World) -> None:
        (hidden,) = await several.names(JobFilter(origin=Origin.RAY_JOBS))
        assert hidden.startswith("job_")
        assert len(await several.names(JobFilter(origin=None))) == 4

    async def test_deleted_jobs_are_in_no_list(self, several: World) -> None:
        await several.delete("c")
        assert await several.names(JobFilter()) == ["a", "b"]


class TestPages:
    async def test_newest_first_unless_asked_otherwise(self, several: World) -> None:
        assert await several.names(JobFilter(), sort="-created_at") == ["a", "b", "c"]
        assert await several.names(JobFilter(), sort="-name") == ["c", "b", "a"]

    async def test_one_after_the_other(self, several: World) -> None:
        seen, cursor = [], None
        async with several.database.read() as session:
            while True:
                request = PageRequest(limit=2, cursor=cursor, sort="name")
                page = await several.service.list(session, JobFilter(), request)
                seen.append([job.spec.name for job in page.items])
                if (cursor := page.next_cursor) is None:
                    break
        assert seen == [["a", "b"], ["c"]]

    async def test_an_unknown_order(self, several: World) -> None:
        with pytest.raises(InvalidInput, match="INVALID_SORT"):
            await several.names(JobFilter(), sort="priority")

    async def test_an_empty_page(self, world: World) -> None:
        assert await world.names(JobFilter()) == []


class TestNames:
    @pytest.mark.parametrize("ref", ["nope", "no\0pe", "", "a/b", "job_01k00000000000000000000000"])
    async def test_what_is_not_there(self, world: World, ref: str) -> None:
        with pytest.raises(NotFound) as caught:
            await world.get(ref)
        assert caught.value.params == {"kind": "job", "ref": ref}

    async def test_name_check(self, world: World) -> None:
        await world.create(world.shared())
        async with world.database.read() as session:
            assert await world.service.name_check(session, "free") is None
            taken = await world.service.name_check(session, "train")
            wrong = await world.service.name_check(session, "a/b")
        assert taken is not None
        assert wrong is not None
        assert (taken.code, wrong.code) == ("NAME_TAKEN", "NAME_INVALID")

    async def test_a_deleted_jobs_name_is_free(self, world: World) -> None:
        await world.create(world.shared())
        await world.delete("train")
        async with world.database.read() as session:
            assert await world.service.name_check(session, "train") is None


class TestRuns:
    async def test_counts_of_a_page_of_jobs(self, world: World) -> None:
        busy, idle = [(await world.create(world.shared(name))).job for name in ("busy", "idle")]
        for state in RunState:
            await world.run(busy, state)
        async with world.database.read() as session:
            counts = await world.service.run_counts(session, [busy, idle])
        assert counts == {
            busy.id: RunCounts(waiting=2, starting=1, running=1, total=len(RunState)),
            idle.id: RunCounts(),
        }

    async def test_who_needs_a_package(self, world: World) -> None:
        async with world.database.write() as session:
            old, new, unused = [await store_package(session) for _ in range(3)]
        job = (await world.create(world.shared("job", package=old))).job
        await world.create(world.shared("gone", package=unused))
        await world.delete("gone")
        run = await world.run(job)
        await world.edit("job", package=new)
        async with world.database.write() as session:
            users = [await job_store.users_of_package(session, package) for package in (old, new, unused)]
            await session.execute(text("UPDATE runs SET state = 'STOPPED' WHERE id = :id"), {"id": run})
            assert users == [["job"], ["job"], []]
            assert await job_store.users_of_package(session, old) == []

    async def test_a_job_is_not_deleted_under_a_run_being_made(self, world: World) -> None:
        """On SQLite writers queue anyway; on PostgreSQL the row is held."""
        job = (await world.create(world.shared())).job
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def submit() -> None:
            async with world.database.write() as session:
                assert await world.service.get(session, "train", for_run=True) == job
                reading.set()
                await go_on.wait()
                await world.submit(session, job)

        submitting = asyncio.create_task(submit())
        await reading.wait()
        deleting = asyncio.create_task(world.delete("train"))
        done, _ = await asyncio.wait([deleting], timeout=0.3)
        assert not done
        go_on.set()
        await submitting
        with pytest.raises(Conflict, match="JOB_HAS_ACTIVE_RUNS"):
            await deleting

    async def test_no_run_of_a_job_being_deleted(self, world: World) -> None:
        await world.create(world.shared())
        deleted, go_on = asyncio.Event(), asyncio.Event()

        async def delete() -> None:
            async with world.database.write() as session:
                await world.service.delete(session, ANN, "train")
                deleted.set()
                await go_on.wait()

        deleting = asyncio.create_task(delete())
        await deleted.wait()

        async def look() -> None:
            async with world.database.write() as session:
                await world.service.get(session, "train", for_run=True)

        looking = asyncio.create_task(look())
        done, _ = await asyncio.wait([looking], timeout=0.3)
        assert not done
        go_on.set()
        await deleting
        with pytest.raises(NotFound):
            await looking

    async def test_an_edit_meanwhile_does_not_hide_the_job(self, world: World) -> None:
        job = (await world.create(world.shared())).job
        edited, go_on = asyncio.Event(), asyncio.Event()

        async def edit() -> None:
            async with world.database.write() as session:
                row = await job_store.find_row(session, "train")
                await job_store.update(session, row, replace(job, revision=2), at=NOW, by="ann")
                edited.set()
                await go_on.wait()

        editing = asyncio.create_task(edit())
        await edited.wait()

        async def look() -> int:
            async with world.database.write() as session:
                return (await world.service.get(session, "train", for_run=True)).revision

        looking = asyncio.create_task(look())
        go_on.set()
        await editing
        assert await looking == 2
