"""Where runs stand in their queues: what the database counts is what admission does, on both databases."""

import random
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.group import Member
from cluster_groups.model.quota import QueueSettings
from cluster_groups.tables import ResourceGroupRow
from kernel.db import Database
from rayjobs import run_store
from rayjobs.model.job import RunMode
from rayjobs.model.run import RunState
from rayjobs.queue_store import QueueStore
from rayjobs.standing import NEAREST, effective_priorities, queue_in_order, settings_of, standing_of
from rayjobs.tables import RunRow
from tests.builders.job_world import World, make_world
from tests.builders.queue_world import order_queue
from tests.builders.targets import NOW, store_cluster, store_cluster_group

HELD = {"code": "QUOTA_INSUFFICIENT", "owner": "quota", "params": {"held_on": "default"}, "since": NOW.isoformat()}
QUEUE = "resource_group/default"


@pytest.fixture
async def world(database: Database) -> World:
    return await make_world(database)


async def wait(world: World, count: int, spec: Any = None, **values: Any) -> list[str]:
    job = (await world.create(spec or world.on_demand())).job
    runs = [await world.run(job, RunState.WAITING) for _ in range(count)]
    for run in runs:
        await change(world, run, **values)
    return runs


async def set_queue(session: AsyncSession, group: str, queue: QueueSettings) -> None:
    statement = update(ResourceGroupRow).where(ResourceGroupRow.name == group)
    await session.execute(statement.values(queue=asdict(queue)))


async def change(world: World, run: str, **values: Any) -> None:
    async with world.database.write() as session:
        await session.execute(update(RunRow).where(RunRow.id == run).values(version=RunRow.version + 1, **values))


@pytest.mark.parametrize("reserve_after_s", [900, None])
async def test_it_is_the_order_of_admission(world: World, reserve_after_s: int | None) -> None:
    """Priorities, ages at and around the steps of aging, equal moments, and one run that capacity is held for."""
    chance = random.Random(4)  # noqa: S311 - a mixed queue, no secret
    queue = QueueSettings(aging_s=60, reserve_after_s=reserve_after_s)
    runs = await wait(world, 24)
    for run in runs:
        age = timedelta(seconds=chance.choice([0, 1, 59, 60, 61, 120, 480, 10_000]), microseconds=chance.choice([0, 1]))
        await change(world, run, priority=chance.choice([1, 4, 5, 6, 9, None]), enqueued_at=NOW - age)
    await change(world, runs[7], condition=HELD)
    async with world.database.write() as session:
        await set_queue(session, "default", queue)
    async with world.database.read() as session:
        expected = [one.id for one in order_queue(await QueueStore().waiting_runs(session), queue, NOW)]
        found = await queue_in_order(session, QUEUE, NOW)
        assert [row.id for row, _ in found] == expected
        assert await effective_priorities(session, [row for row, _ in found], NOW) == {
            row.id: priority for row, priority in found
        }
        for at, (row, _) in enumerate(found):
            standing = await standing_of(session, row, NOW)
            assert (standing.position, standing.ahead) == (at + 1, expected[max(0, at - NEAREST) : at][::-1])


async def test_only_what_waits_there_counts(world: World) -> None:
    first, second, third = await wait(world, 3)
    await change(world, first, state=RunState.RUNNING)
    await change(world, second, queue="resource_group/other")
    async with world.database.read() as session:
        found = await queue_in_order(session, QUEUE, NOW)
        assert [row.id for row, _ in found] == [third]
        row = await run_store.get_run(session, first)
        assert await effective_priorities(session, [row], NOW) == {first: 5}


async def test_the_settings_are_those_of_the_resource_group(world: World) -> None:
    """api.md §13: of the cluster's group, of the one group of all members, else of `default`."""
    async with world.database.write() as session:
        await set_queue(session, "elsewhere", QueueSettings(aging_s=11))
        await store_cluster(session, "there", resource_group="elsewhere")
        await store_cluster(session, "there-too", resource_group="elsewhere")
        await store_cluster_group(session, "one", Member(cluster="there"), Member(cluster="there-too"))
        await store_cluster_group(session, "two", Member(cluster="there"), Member(cluster="c1"))
    specs = {
        "own": (world.on_demand(name="own", resource_package="other", resource_group="elsewhere"), 11),
        "cluster": (world.shared("cluster", cluster="there"), 11),
        "free": (world.shared("free", cluster="c1"), 600),
        "one": (world.shared("one", run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="one"), 11),
        "two": (world.shared("two", run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="two"), 600),
    }
    for spec, aging_s in specs.values():
        (run,) = await wait(world, 1, spec)
        async with world.database.read() as session:
            queue = (await run_store.get_run(session, run)).queue
            assert (await settings_of(session, queue)).aging_s == aging_s, spec.name
