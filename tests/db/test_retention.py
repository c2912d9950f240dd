"""What is kept for how long."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from cluster_groups.model.cluster import ClusterState
from cluster_groups.tables import ClusterRow
from kernel.db import Base, Database
from kernel.events import EventRow, record
from rayjobs.model.job import Origin
from rayjobs.model.run import AttemptState, RunState, submission_id
from rayjobs.retention import Keep, expire
from rayjobs.run_store import get_run
from rayjobs.tables import AttemptRow, JobRow, LogRow, RunRow
from runtime_envs.packages.local import LocalBlobStore
from tests.builders.job_world import World, make_world
from tests.builders.targets import NOW, store_cluster

KEEP = Keep(runs_days=90, logs_days=30)
DAY = timedelta(days=1)


async def an_old_run(world: World, age_days: int, state: AttemptState = AttemptState.ENDED, **job: object) -> str:
    saved = await world.create(world.shared(name=f"job-{age_days}-{state}"), **job)
    run_id = await world.run(saved.job, RunState.SUCCEEDED)
    ended = NOW - age_days * DAY
    async with world.database.write() as session:
        run = await get_run(session, run_id)
        run.ended_at = run.created_at = ended
        (await session.get_one(JobRow, saved.job.id)).created_at = ended
        attempt = AttemptRow(
            id=submission_id(run_id, 1), run_id=run_id, epoch=1, cluster_id="clu_1", cluster="c1", demand={},
            state=state, state_since=ended, created_at=ended, ended_at=ended,
        )  # fmt: skip
        session.add(attempt)
        await session.flush()
        session.add(LogRow(attempt_id=attempt.id, segments=[]))
    return run_id


async def count(database: Database, row: type[Base]) -> int:
    async with database.read() as session:
        return await session.scalar(select(func.count()).select_from(row)) or 0


@pytest.fixture
async def world(database: Database) -> World:
    return await make_world(database)


@pytest.fixture
async def blobs(tmp_path: Path) -> LocalBlobStore:
    store = LocalBlobStore(tmp_path / "blobs")
    await store.prepare()
    return store


async def test_old_runs_go_with_all_that_is_theirs(world: World, blobs: LocalBlobStore) -> None:
    kept, _ = await an_old_run(world, 89), await an_old_run(world, 91)
    await expire(world.database, blobs, KEEP, NOW)
    async with world.database.read() as session:
        assert list(await session.scalars(select(RunRow.id))) == [kept]
        assert set(await session.scalars(select(EventRow.target_id).where(EventRow.target_id.like("run_%")))) == {kept}
    assert (await count(world.database, AttemptRow), await count(world.database, LogRow)) == (1, 0)


async def test_logs_go_before_their_runs(world: World, blobs: LocalBlobStore) -> None:
    for age in (29, 31):
        await an_old_run(world, age)
    await expire(world.database, blobs, KEEP, NOW)
    assert (await count(world.database, RunRow), await count(world.database, LogRow)) == (2, 1)


async def test_a_run_whose_attempt_is_not_over_stays(world: World, blobs: LocalBlobStore) -> None:
    await an_old_run(world, 100, AttemptState.RELEASING)
    await expire(world.database, blobs, KEEP, NOW)
    assert await count(world.database, RunRow) == 1


async def test_jobs_that_nobody_sees_go_with_their_runs(world: World, blobs: LocalBlobStore) -> None:
    await an_old_run(world, 100, origin=Origin.RAY_JOBS)
    await an_old_run(world, 101)
    await expire(world.database, blobs, KEEP, NOW)
    async with world.database.read() as session:
        assert set(await session.scalars(select(JobRow.origin))) == {Origin.API}


async def test_clusters_deleted_long_ago(world: World, blobs: LocalBlobStore) -> None:
    async with world.database.write() as session:
        for name in ("old", "new"):
            await store_cluster(session, name, ClusterState.DELETED, on_demand_run=f"run_{name}")
        old = (await session.scalars(select(ClusterRow).where(ClusterRow.name == "old"))).one()
        old.state_since = NOW - 91 * DAY
        record(session, old.id, "DELETED", at=NOW)
    await expire(world.database, blobs, KEEP, NOW)
    async with world.database.read() as session:
        assert set(await session.scalars(select(ClusterRow.name))) == {"c1", "new"}
        assert old.id not in set(await session.scalars(select(EventRow.target_id)))
