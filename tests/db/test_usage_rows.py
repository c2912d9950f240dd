"""However a run ends, nothing of it is held any more, and its account says from when to when it was."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from kernel.db import Database
from rayjobs.gateway.base import RayStatus
from rayjobs.queue_store import QueueStore
from rayjobs.runner.spec import EXIT_GANG_TIMEOUT, EXIT_TASK_LOST
from rayjobs.tables import UsageRow
from tests.builders.run_world import RunWorld, retrying

Story = Callable[[RunWorld, str], Awaitable[None]]


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> RunWorld:
    return await RunWorld(database, tmp_path / "blobs").prepare()


async def succeeds(world: RunWorld, run: str) -> None:
    world.over(await world.running(run), 0)
    await world.step(run)


async def fails(world: RunWorld, run: str) -> None:
    world.over(await world.running(run), 3)
    await world.step(run)


async def loses_a_node(world: RunWorld, run: str) -> None:
    world.over(await world.running(run), EXIT_TASK_LOST)
    await world.step(run)


async def is_stopped_while_running(world: RunWorld, run: str) -> None:
    await _stops(world, run, await world.running(run))


async def is_stopped_while_placing(world: RunWorld, run: str) -> None:
    await _stops(world, run, await world.placing(run))


async def is_stopped_while_pending(world: RunWorld, run: str) -> None:
    await _stops(world, run, await world.sent(run))


async def _stops(world: RunWorld, run: str, attempt_id: str) -> None:
    """It is asked to, and Ray has done so."""
    await world.stop(run)
    await world.step(run)
    world.gateway.becomes(attempt_id, RayStatus.STOPPED)
    await world.step(run)


async def is_stopped_at_once(world: RunWorld, run: str) -> None:
    await world.admit()
    await world.stop(run)
    world.clock.pass_s(60)
    await world.step(run)


async def is_given_back_and_stopped(world: RunWorld, run: str) -> None:
    attempt_id = await world.placing(run)
    world.over(attempt_id, EXIT_GANG_TIMEOUT)
    await world.step(run)
    await world.stop(run)


async def is_lost_with_its_cluster(world: RunWorld, run: str) -> None:
    attempt_id = await world.running(run)
    world.gateway.is_down = True
    await world.step(run)
    world.clock.pass_s(900)
    await world.step(run)
    world.clock.pass_s(61)
    await world.step(run)
    world.gateway.is_down = False
    world.gateway.becomes(attempt_id, RayStatus.STOPPED)


STORIES: list[Story] = [
    succeeds,
    fails,
    loses_a_node,
    is_stopped_while_running,
    is_stopped_while_placing,
    is_stopped_while_pending,
    is_stopped_at_once,
    is_given_back_and_stopped,
    is_lost_with_its_cluster,
]


@pytest.mark.parametrize("mode", ["cluster", "on_demand"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_nothing_is_held_at_the_end(world: RunWorld, story: Story, mode: str) -> None:
    run = await world.submit(**({"run_mode": world.ON_DEMAND} if mode == "on_demand" else {}))
    await story(world, run)
    await world.settle(run)
    assert (await world.row(run)).ended_at is not None
    async with world.database.read() as session:
        assert await QueueStore().ledger(session) == {}
        assert await world.fleet.quota_held(session) == {}
        assert list(await session.scalars(select(UsageRow).where(UsageRow.ended_at.is_(None)))) == []
    assert await world.usage(run)


class TestAccounts:
    async def test_a_gang_is_charged_from_full_allocation_on(self, world: RunWorld) -> None:
        run = await world.submit()
        began = world.clock.now()
        attempt_id = await world.placing(run)
        (usage,) = await world.usage(run)
        assert (usage.held_from, usage.began_at, usage.ended_at) == (began, None, None)
        assert (usage.amount["cpu"], usage.amount["memory_gib"]) == (8, 8)
        world.clock.pass_s(10)
        world.tell_placed(attempt_id)
        await world.step(run)
        world.clock.pass_s(30)
        world.over(attempt_id, 0)
        await world.step(run)
        (usage,) = await world.usage(run)
        assert usage.began_at is not None
        assert usage.ended_at is not None
        assert (usage.began_at - began).total_seconds() == 10
        assert (usage.ended_at - usage.began_at).total_seconds() == 30
        assert not usage.in_vain

    async def test_while_nobody_looked_only_what_ran_is_charged(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.placing(run)
        world.tell_placed(attempt_id)
        await world.step(run)
        began = world.clock.now()
        world.clock.pass_s(3600)
        world.over(attempt_id, 0, ended_at=began + timedelta(seconds=30))
        await world.step(run)
        (usage,) = await world.usage(run)
        assert usage.ended_at == (await world.row(run)).ended_at == began + timedelta(seconds=30)

    async def test_what_never_had_all_is_not_charged(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.placing(run)
        world.clock.pass_s(600)
        world.over(attempt_id, EXIT_GANG_TIMEOUT)
        await world.step(run)
        (usage,) = await world.usage(run)
        assert (usage.began_at, usage.ended_at, usage.in_vain) == (None, world.clock.now(), True)

    async def test_an_attempt_that_another_follows_was_in_vain(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("user"))
        await fails(world, run)
        await world.settle(run)
        world.clock.pass_s(120)
        await succeeds(world, run)
        assert [(one.attempt_id[-2:], one.in_vain) for one in await world.usage(run)] == [("a1", True), ("a2", False)]

    async def test_a_cluster_of_its_own_is_charged_until_it_is_gone(self, world: RunWorld) -> None:
        run = await world.submit(run_mode=world.ON_DEMAND)
        began = world.clock.now()
        await world.admit()
        world.clock.pass_s(100)
        await world.own_cluster_up(run)
        await world.step(run)
        assert (await world.row(run)).allocated_at is None  # R8: nothing is charged before every task has its place
        world.clock.pass_s(7)
        attempt_id = await world.running(run)
        allocated = (await world.row(run)).allocated_at
        assert allocated == world.clock.now()
        world.over(attempt_id, 0)
        await world.step(run)
        assert (await world.usage(run))[0].ended_at is None
        await world.settle(run)
        (usage,) = await world.usage(run)
        assert (usage.held_from, usage.began_at, usage.cold_start_s) == (began, allocated, 100)
        assert usage.ended_at == (await world.attempt(run)).ended_at
        assert usage.amount["cpu"] == 2 + 8 * 2
        assert usage.resource_group == "default"

    async def test_a_plain_job_from_when_it_is_given_its_place(self, world: RunWorld) -> None:
        run = await world.submit((), origin=world.HIDDEN)
        await world.sent(run)
        world.clock.pass_s(7)
        await world.running(run)
        (usage,) = await world.usage(run)
        assert usage.began_at == usage.held_from == (await world.row(run)).allocated_at
