"""Runs that wait for a cluster group, through the loop and the database: what is remembered from look to look."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from cluster_groups.model.group import Member, Policy, Window
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.service.groups import ClusterGroups, GroupChanges
from cluster_groups.store.clusters import health_column
from cluster_groups.tables import ClusterRow
from kernel.actor import Actor, Role
from kernel.db import Database
from rayjobs.fleet import users_of_cluster_group
from rayjobs.model.job import RunMode
from rayjobs.model.run import RunState
from rayjobs.reconcile.admission import LOOK_EVERY_S
from rayjobs.tables import DecisionRow
from tests.builders.policies import because
from tests.builders.run_world import RunWorld
from tests.builders.targets import DEFAULTS, store_cluster, store_cluster_group

OPERATOR = Actor(user="ops", role=Role.OPERATOR)


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> RunWorld:
    """c1 bears one run at a time, c2 many."""
    made = await RunWorld(database, tmp_path).prepare(workers=1)
    async with database.write() as session:
        await store_cluster(session, "small", max_runs=1)
        await store_cluster(session, "large")
    for name in ("small", "large"):
        await made.set_nodes(name, 1)
    return made


async def group(world: RunWorld, *members: Member, policy: Policy = DEFAULTS) -> None:
    async with world.database.write() as session:
        await store_cluster_group(session, "g1", *members, policy=policy)


async def submit(world: RunWorld) -> str:
    return await world.submit((), world.HIDDEN, run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="g1")


async def decisions(world: RunWorld, run_id: str) -> list[dict[str, Any]]:
    async with world.database.read() as session:
        rows = select(DecisionRow.decision).where(DecisionRow.run_id == run_id).order_by(DecisionRow.seq)
        return list(await session.scalars(rows))


async def test_a_run_spills_when_it_has_waited_for_room(world: RunWorld) -> None:
    await group(world, Member(cluster="small"), Member(cluster="large", tier=1), policy=Policy(spill_after_s=10))
    first, second = await submit(world), await submit(world)
    assert await world.admit() == 10
    assert (await world.row(first)).cluster == "small"
    waiting = await world.row(second)
    assert waiting.condition is not None
    assert (waiting.state, waiting.condition["code"]) == (RunState.WAITING, "HEAD_BUSY")
    since = waiting.condition["params"]["no_room_since"]
    world.clock.pass_s(5)
    assert await world.admit() == 5
    waiting = await world.row(second)
    assert waiting.condition is not None
    assert waiting.condition["params"]["no_room_since"] == since
    world.clock.pass_s(5)
    await world.admit()
    assert (await world.row(second)).cluster == "large"
    waited, started = await decisions(world, second)
    assert (waited["outcome"], waited["no_room_since"]) == ("waiting", since)
    assert (started["chosen"], started["tier"]) == ("large", 1)
    assert "Tier 0 had no room for 10 s" in because(started)


async def test_the_decision_that_is_shown_is_never_an_old_one(world: RunWorld) -> None:
    """And while nothing changes nothing is written."""
    await group(world, Member(cluster="small"), Member(cluster="c1", order=1, tier=1), policy=Policy(spill_after_s=20))
    c1 = update(ClusterRow).where(ClusterRow.name == "c1").values(version=ClusterRow.version + 1)
    async with world.database.write() as session:
        await session.execute(c1.values(max_runs=1))
    await world.submit((), world.HIDDEN, cluster="c1")
    await submit(world)
    run = await submit(world)

    async def looked(pass_s: float = 0) -> tuple[int, str]:
        world.clock.pass_s(pass_s)
        await world.admit()
        told = await decisions(world, run)
        return len(told), because(told[-1])

    lacks = "No member can take the run now: small: HEAD_BUSY"
    assert await looked() == (1, f"{lacks}. Tier 1 opens to it when it has waited 20 s for room.")
    version = (await world.row(run)).version
    assert (await looked(10))[0] == 1
    assert (await world.row(run)).version == version
    assert await looked(10) == (2, f"{lacks}, c1: HEAD_BUSY.")
    assert (await looked(10))[0] == 2
    async with world.database.write() as session:
        ill = Health(status=HealthStatus.UNHEALTHY, since=world.clock.now())
        await session.execute(c1.values(health=health_column(ill)))
    assert await looked() == (3, f"{lacks}, c1: HEALTH_UNHEALTHY.")
    async with world.database.write() as session:
        groups = ClusterGroups(world.clock, world.hints, users_of_cluster_group)
        await groups.edit(session, OPERATOR, "g1", GroupChanges(timezone="Asia/Tokyo"))
    assert (await looked())[0] == 4
    assert (await decisions(world, run))[-1]["revision"] == 2
    version = (await world.row(run)).version
    assert (await looked(10))[0] == 4
    assert (await world.row(run)).version == version


async def test_a_window_that_opens_starts_the_runs_that_wait_for_it(world: RunWorld) -> None:
    """It is noon."""
    await group(world, Member(cluster="large", windows=(Window(start="12:01", end="12:02"),)))
    run = await submit(world)
    assert await world.admit() == LOOK_EVERY_S
    waiting = await world.row(run)
    assert waiting.condition is not None
    assert waiting.condition["code"] == "GROUP_WINDOW_CLOSED"
    world.clock.pass_s(50)
    assert await world.admit() == 10
    world.clock.pass_s(10)
    await world.admit()
    assert (await world.row(run)).cluster == "large"


async def test_what_runs_through_the_group_counts_for_the_limit_of_a_member(world: RunWorld) -> None:
    await group(world, Member(cluster="large", max_running=1))
    await world.submit((), world.HIDDEN, cluster="large")
    first, second = await submit(world), await submit(world)
    await world.admit()
    assert (await world.row(first)).cluster == "large"
    condition = (await world.row(second)).condition
    assert condition is not None
    assert (condition["code"], condition["params"]["running"]) == ("MEMBER_LIMIT", 1)
