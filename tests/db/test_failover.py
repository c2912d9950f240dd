"""Runs whose cluster is lost, returns, or closes its window over them: from placement to the end, on both databases."""

import asyncio
import hashlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from cluster_groups.model.group import Member, OnClusterLoss, OnWindowEnd, Policy, PolicyDraft, Window
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.service.groups import ClusterGroups
from cluster_groups.store import clusters as cluster_store
from cluster_groups.tables import ClusterRow
from kernel.db import Database
from kernel.errors import Conflict
from rayjobs.decide.pace import AT_ONCE, WITHIN
from rayjobs.fleet import users_of_cluster_group
from rayjobs.gateway.base import RayStatus
from rayjobs.leases import Callback
from rayjobs.model.job import RunMode
from rayjobs.model.run import submission_id
from rayjobs.reconcile import attempts
from rayjobs.runner.spec import unpack
from rayjobs.tables import AttemptRow
from tests.builders.cluster_world import OPERATOR
from tests.builders.run_world import Outside, RunWorld, retrying
from tests.builders.targets import store_cluster, store_cluster_group

TTL_S = 600
LOST_AFTER_S = 690
REDISPATCH = Policy(on_cluster_loss=OnClusterLoss.REDISPATCH, lost_timeout_s=LOST_AFTER_S)
PAIR = (Member(cluster="near"), Member(cluster="far", tier=1))
NOON_HOUR = (Window(start="11:00", end="12:30"),)


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> RunWorld:
    outside = Outside(callback=Callback(url="http://127.0.0.1:1", key=b"key"), lease_ttl_s=TTL_S)
    made = await RunWorld(database, tmp_path, outside).prepare(workers=1)
    async with database.write() as session:
        await store_cluster(session, "near")
        await store_cluster(session, "far")
    for name in ("near", "far"):
        await made.set_nodes(name, 1)
    return made


async def group(world: RunWorld, *members: Member, policy: Policy = REDISPATCH) -> None:
    async with world.database.write() as session:
        await store_cluster_group(session, "g1", *(members or PAIR), policy=policy)


async def submit(world: RunWorld, **fields: Any) -> str:
    target = {"run_mode": RunMode.CLUSTER_GROUP, "cluster": None, "cluster_group": "g1"}
    return await world.submit((), world.HIDDEN, **{**target, "retry": retrying("lost"), **fields})


async def cluster_id(world: RunWorld, name: str) -> str:
    async with world.database.read() as session:
        return str((await session.scalars(select(ClusterRow.id).where(ClusterRow.name == name))).one())


async def set_health(world: RunWorld, name: str, status: HealthStatus, **fields: Any) -> None:
    health = Health(status=status, since=world.clock.now(), **fields)
    values = {"health": cluster_store.health_column(health), "version": ClusterRow.version + 1}
    async with world.database.write() as session:
        await session.execute(update(ClusterRow).where(ClusterRow.name == name).values(**values))


async def cut_off(world: RunWorld, name: str) -> None:
    world.gateway.silent.add(await cluster_id(world, name))
    await set_health(world, name, HealthStatus.UNHEALTHY)


async def comes_back(world: RunWorld, name: str) -> None:
    world.gateway.silent.discard(await cluster_id(world, name))
    await set_health(world, name, HealthStatus.HEALTHY, recovered_at=world.clock.now())


async def renew(world: RunWorld, attempt_id: str) -> int:
    spec = unpack(world.gateway.sent[attempt_id].entrypoint.split()[-1])
    assert spec.lease is not None
    secret = hashlib.sha256(attempt_id.encode()).hexdigest()
    return await world.leases.renew(attempt_id, spec.lease.claim, secret)


async def attempt_step(world: RunWorld, attempt_id: str, times: int = 1) -> AttemptRow:
    for _ in range(times):
        await world.step_attempt(attempt_id)
    async with world.database.read() as session:
        return await session.get_one(AttemptRow, attempt_id)


async def given_up(world: RunWorld, run: str) -> None:
    """From the first look in vain."""
    await world.step(run)
    assert (await world.row(run)).state == "RUNNING"
    world.clock.pass_s(LOST_AFTER_S)
    await world.step(run)


class TestLost:
    async def test_with_a_lease_it_goes_on_elsewhere_when_that_has_run_out(self, world: RunWorld) -> None:
        await group(world)
        run = await submit(world)
        first = await world.running(run)
        await cut_off(world, "near")
        world.clock.pass_s(100)
        await world.step(run)
        condition = (await world.row(run)).condition
        assert condition is not None
        assert condition["code"] == "CLUSTER_LOST"
        world.clock.pass_s(LOST_AFTER_S - 50)
        assert await renew(world, first) == TTL_S  # only the way there is cut
        renewed = world.clock.now()
        world.clock.pass_s(50)
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.tries, row.cluster) == ("WAITING", 1, None)
        with pytest.raises(Conflict, match="LEASE_REFUSED"):
            await renew(world, first)
        free_at = renewed + timedelta(seconds=TTL_S + 90)
        wait_s = (free_at - world.clock.now()).total_seconds()
        world.clock.pass_s(wait_s - 5)
        assert await world.admit() == 5
        condition = (await world.row(run)).condition
        assert condition is not None
        assert (condition["code"], condition["params"]["because"]) == ("RETRY_BACKOFF", "CLUSTER_LOST")
        world.clock.pass_s(5)
        second = await world.running(run)
        spec = unpack(world.gateway.sent[second].entrypoint.split()[-1])
        assert (spec.attempt, spec.previous_cluster, spec.lease) == (2, "near", None), "the last depends on nobody"
        row = await world.row(run)
        assert (row.state, row.cluster, row.condition) == ("RUNNING", "far", None)
        assert (await attempt_step(world, first, times=3)).state == "RELEASING"

    async def test_without_one_only_what_is_safe_to_repeat_moves(self, world: RunWorld) -> None:
        await group(world)
        await set_can_call_back(world, "near", is_able=False)
        plain, safe = await submit(world), await submit(world, retry_safe=True)
        await world.running(plain)
        await world.running(safe)
        await cut_off(world, "near")
        await world.step(plain)
        await world.step(safe)
        world.clock.pass_s(LOST_AFTER_S)
        await world.step(plain)
        await world.step(safe)
        row = await world.row(plain)
        assert (row.state, row.end and row.end["code"]) == ("FAILED", "CLUSTER_LOST")
        await world.admit()
        row = await world.row(safe)
        assert (row.state, row.cluster) == ("STARTING", "far")

    async def test_by_the_policy_as_it_was_when_it_was_placed(self, world: RunWorld) -> None:
        await group(world)
        run = await submit(world)
        await world.running(run)
        await revise(world, members=PAIR, policy={"on_cluster_loss": "fail", "lost_timeout_s": 10})
        await cut_off(world, "near")
        await given_up(world, run)
        assert (await world.row(run)).state == "WAITING"

    async def test_a_cluster_of_a_policy_that_says_fail(self, world: RunWorld) -> None:
        await group(world, policy=replace(REDISPATCH, on_cluster_loss=OnClusterLoss.FAIL))
        run = await submit(world)
        attempt_id = await world.running(run)
        assert unpack(world.gateway.sent[attempt_id].entrypoint.split()[-1]).lease is None
        await cut_off(world, "near")
        await given_up(world, run)
        row = await world.row(run)
        assert (row.state, row.end and row.end["code"]) == ("FAILED", "CLUSTER_LOST")

    async def test_a_returning_cluster_has_what_is_stale_stopped_first(self, world: RunWorld) -> None:
        await group(world)
        run = await submit(world)
        first = await world.running(run)
        await cut_off(world, "near")
        await given_up(world, run)
        await attempt_step(world, first, times=2)
        world.clock.pass_s(90)
        await world.admit()
        assert (await world.row(run)).cluster == "far"
        assert (await attempt_step(world, first, times=2)).state == "RELEASING"
        await comes_back(world, "near")
        world.clock.pass_s(1000)
        new, fixed = await submit(world), await world.submit((), world.HIDDEN, cluster="near")
        await world.admit()
        assert (await world.row(new)).cluster == "far"
        waiting = (await world.row(fixed)).condition
        assert waiting is not None
        assert (waiting["code"], waiting["params"]) == ("STALE_ATTEMPTS", {"cluster": "near", "attempts": 1})
        assert (await attempt_step(world, first)).state == "RELEASING"
        assert world.gateway.stopped == [first]
        world.gateway.becomes(first, RayStatus.STOPPED)
        assert (await attempt_step(world, first)).state == "ENDED"
        await world.admit()
        assert (await world.row(fixed)).cluster == "near"
        row = await world.row(run)
        assert (row.state, row.epoch, row.cluster) == ("STARTING", 2, "far")

    async def test_what_its_cluster_confirms_waits_for_no_lease(self, world: RunWorld) -> None:
        await group(world)
        run = await submit(world)
        first = await world.running(run)
        await renew(world, first)
        world.gateway.jobs.clear()  # the head was restarted
        await world.step(run, times=2)
        assert (await world.row(run)).state == "WAITING"
        world.clock.pass_s(85)
        assert (await attempt_step(world, first)).state == "ENDED"
        await world.admit()
        assert (await world.row(run)).epoch == 2

    async def test_not_all_move_at_once(self, world: RunWorld) -> None:
        await group(world, *(Member(cluster=name) for name in ("near", "far", "c1")))
        runs = [await submit(world) for _ in range(AT_ONCE + 3)]
        while {(await world.row(run)).state for run in runs} != {"RUNNING"}:
            await world.admit()
            for run in runs:
                if (await world.row(run)).state != "SUBMITTED":
                    await go(world, run)
        world.gateway.jobs.clear()
        for run in runs:
            await world.step(run, times=2)
        world.clock.pass_s(85)
        for run in runs:
            await world.step(run)
        moved: list[str] = []
        for _ in range(10):
            await world.admit()
            moved = [run for run in runs if (await world.row(run)).epoch == 2]
            for run in moved:
                await go(world, run)
        assert len(moved) == AT_ONCE
        codes = {row.condition["code"] for run in runs if (row := await world.row(run)).condition}
        assert codes == {"MOVES_PACED"}
        world.clock.pass_s(WITHIN.total_seconds())
        for _ in range(3):
            await world.admit()
        assert {(await world.row(run)).epoch for run in runs} == {2}


class TestWindowEnd:
    STOP = replace(REDISPATCH, on_window_end=OnWindowEnd.STOP)
    OPEN = (Member(cluster="near", windows=NOON_HOUR),)

    async def test_it_is_stopped_and_waits_for_the_next(self, world: RunWorld) -> None:
        await group(world, *self.OPEN, policy=self.STOP)
        run = await submit(world)
        attempt_id = await world.running(run)
        world.clock.pass_s(30 * 60)
        await world.step(run)
        assert world.gateway.stopped == [attempt_id]
        world.gateway.becomes(attempt_id, RayStatus.STOPPED)
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.tries) == ("WAITING", 1)
        await attempt_step(world, attempt_id, times=2)
        world.clock.pass_s(5)
        assert (await attempt_step(world, attempt_id)).state == "ENDED"
        await world.admit()
        condition = (await world.row(run)).condition
        assert condition is not None
        assert condition["code"] == "GROUP_WINDOW_CLOSED"
        world.clock.pass_s(23 * 3600)
        await world.admit()
        row = await world.row(run)
        assert (row.state, row.epoch, row.cluster) == ("STARTING", 2, "near")

    async def test_without_another_attempt_it_ends_also_under_a_new_process(
        self, world: RunWorld, database: Database, tmp_path: Path
    ) -> None:
        await group(world, *self.OPEN, policy=self.STOP)
        run = await submit(world, retry=retrying("lost", attempts=1))
        attempt_id = await world.running(run)
        outside = Outside(clock=world.clock, gateway=world.gateway, backend=world.backend)
        after = RunWorld(database, tmp_path, outside)
        world.clock.pass_s(30 * 60 - 2)
        assert await after.step_attempt(attempt_id) == pytest.approx(2)
        world.clock.pass_s(2)
        await after.step(run)
        world.gateway.becomes(attempt_id, RayStatus.STOPPED)
        await after.step(run)
        row = await after.row(run)
        assert (row.state, row.end and row.end["class"], row.end and row.end["code"]) == (
            "STOPPED", "stopped", "WINDOW_ENDED",
        )  # fmt: skip

    async def test_or_goes_on(self, world: RunWorld) -> None:
        await group(world, *self.OPEN)
        run = await submit(world)
        await world.running(run)
        await revise(world, members=self.OPEN, policy={"on_window_end": "stop"})
        world.clock.pass_s(3600)
        await world.step(run)
        assert (await world.states(run), world.gateway.stopped) == (("RUNNING", "RUNNING"), [])


class TestEdits:
    async def test_what_runs_on_a_member_that_is_removed_ends_there(self, world: RunWorld) -> None:
        await group(world)
        run = await submit(world)
        attempt_id = await world.running(run)
        await revise(world, members=(Member(cluster="far"),))
        with pytest.raises(Conflict):
            async with world.database.write() as session:
                await groups_of(world).delete(session, OPERATOR, "g1")
        await world.admit()
        world.over(attempt_id, 0)
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.cluster, row.epoch) == ("SUCCEEDED", "near", 1)

    async def test_a_primary_that_recovers_gets_new_runs_when_it_is_stable_and_no_old_ones(
        self, world: RunWorld
    ) -> None:
        await group(world, policy=replace(REDISPATCH, failback_stable_s=600))
        await set_health(world, "near", HealthStatus.UNHEALTHY)
        old = await submit(world)
        await world.running(old)
        await comes_back(world, "near")
        world.clock.pass_s(599)
        early = await submit(world)
        await world.admit()
        world.clock.pass_s(1)
        new = await submit(world)
        await world.admit()
        places = [(await world.row(run)).cluster for run in (old, early, new)]
        assert places == ["far", "far", "near"]
        await world.step(old)
        assert await world.states(old) == ("RUNNING", "RUNNING")


async def go(world: RunWorld, run: str) -> None:
    """From wherever it is to RUNNING."""
    attempt_id = submission_id(run, (await world.row(run)).epoch)
    await world.step(run)
    if attempt_id in world.gateway.jobs:
        world.gateway.becomes(attempt_id, RayStatus.RUNNING)
    await world.step(run)


async def set_can_call_back(world: RunWorld, name: str, *, is_able: bool) -> None:
    values = {"can_call_back": is_able, "version": ClusterRow.version + 1}
    async with world.database.write() as session:
        await session.execute(update(ClusterRow).where(ClusterRow.name == name).values(**values))


def groups_of(world: RunWorld) -> ClusterGroups:
    return ClusterGroups(world.clock, world.hints, users_of_cluster_group)


async def revise(world: RunWorld, *, members: tuple[Member, ...], policy: dict[str, Any] | None = None) -> None:
    async with world.database.write() as session:
        draft = PolicyDraft(members=members, policy=policy or {})
        await groups_of(world).put_policy(session, OPERATOR, "g1", draft, if_match=1)


async def test_a_submission_that_hangs_is_not_waited_for_past_the_loss(
    world: RunWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "ANSWER_WHEN_LOST_S", 0.01)
    await group(world)
    run = await submit(world)
    await world.admit()
    world.gateway.is_down = True
    await world.step(run, 2)
    world.gateway.is_down, world.gateway.hangs = False, True
    world.clock.pass_s(LOST_AFTER_S)
    async with asyncio.timeout(10):
        await world.step(run)
    attempt = await world.attempt(run)
    assert (attempt.state, attempt.end["code"]) == ("COLLECTING", "CLUSTER_LOST")
