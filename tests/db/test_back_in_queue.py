"""A start that is given back and an attempt that is tried again: when, how often, and never two at once."""

from datetime import timedelta
from pathlib import Path

import pytest

from kernel.clock import instant
from kernel.db import Database
from kernel.errors import NotFound
from rayjobs.gateway.base import RayStatus
from rayjobs.run_report import report_tasks
from rayjobs.runner.spec import EXIT_GANG_TIMEOUT, EXIT_TASK_LOST, unpack
from rayjobs.tables import RunRow
from tests.builders.run_world import DRIVER_AGENT, RunWorld, retrying

TIMEOUT = {"missing": 2, "wanted": 8, "gang_timeout_s": 600}


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> RunWorld:
    return await RunWorld(database, tmp_path / "blobs").prepare()


async def given_back(world: RunWorld, run: str) -> None:
    attempt_id = await world.placing(run)
    world.tell(attempt_id, "gang_waiting", wanted=8)
    world.verdict(attempt_id, "placement", "GANG_TIMEOUT", EXIT_GANG_TIMEOUT, params=TIMEOUT)
    world.over(attempt_id, EXIT_GANG_TIMEOUT)
    await world.step(run)


async def failed(world: RunWorld, run: str, exit_code: int = EXIT_TASK_LOST) -> None:
    attempt_id = await world.running(run)
    world.clock.pass_s(30)
    world.over(attempt_id, exit_code)
    await world.step(run)


async def tasks(world: RunWorld, run: str, epoch: int | None = None) -> list[tuple[str, int | None]]:
    async with world.database.read() as session:
        found = await report_tasks(session, await session.get_one(RunRow, run), epoch)
        return [(task.state, task.exit_code) for task in found]


class TestGivenBack:
    async def test_it_waits_again_with_its_age(self, world: RunWorld) -> None:
        run = await world.submit()
        before = await world.row(run)
        world.clock.pass_s(5)
        await given_back(world, run)
        row, attempt = await world.row(run), await world.attempt(run)
        assert (row.state, row.end, attempt.state) == ("WAITING", None, "COLLECTING")
        assert attempt.end is not None
        assert (attempt.end["code"], attempt.end["params"]) == ("GANG_TIMEOUT", TIMEOUT)
        assert (row.enqueued_at, row.waiting_since, row.tries) == (before.enqueued_at, before.enqueued_at, 0)
        assert row.not_before is not None
        assert 60 <= (row.not_before - world.clock.now()).total_seconds() <= 120
        assert row.condition is not None
        assert row.condition["code"] == "GANG_BACKOFF"
        params = {"because": "GANG_TIMEOUT", "not_before": instant(row.not_before), "tries": 1}
        assert row.condition["params"] == params

    async def test_the_next_start_comes_after_the_back_off(self, world: RunWorld) -> None:
        run = await world.submit()
        await given_back(world, run)
        await world.settle(run)
        await world.admit()
        assert (await world.row(run)).state == "WAITING"
        world.clock.pass_s(120)
        attempt_id = await world.sent(run)
        assert attempt_id.endswith("-a2")
        spec = unpack(world.gateway.sent[attempt_id].entrypoint.split()[-1])
        assert (spec.attempt, spec.previous_cluster) == (2, "c1")
        row = await world.row(run)
        assert (row.state, row.condition, row.not_before) == ("STARTING", None, None)

    async def test_it_costs_no_attempt_however_often(self, world: RunWorld) -> None:
        run = await world.submit()
        for _ in range(3):
            await given_back(world, run)
            await world.settle(run)
            world.clock.pass_s(120)
        row = await world.row(run)
        assert (row.state, row.epoch, row.tries) == ("WAITING", 3, 0)

    async def test_a_cluster_of_its_own_that_does_not_come_up(self, world: RunWorld) -> None:
        run = await world.submit(run_mode=world.ON_DEMAND, start_timeout_s=100)
        await world.admit()
        cluster = await world.look_at_cluster(run)
        world.clock.pass_s(100)
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.cluster, row.cluster_id) == ("WAITING", None, None)
        assert row.condition is not None
        assert row.condition["code"] == "GANG_BACKOFF"
        await world.settle(run)
        assert cluster in world.backend.stops
        world.clock.pass_s(120)
        await world.admit()
        row = await world.row(run)
        assert (row.state, row.epoch) == ("STARTING", 2)
        assert row.cluster_id != cluster

    async def test_people_see_it_wait_in_its_queue(self, world: RunWorld) -> None:
        run = await world.submit()
        await given_back(world, run)
        report = await world.report(run)
        assert {phase.name: phase.state for phase in report.phases}["queue"] == "active"
        assert [group.waiting for group in report.groups] == [3, 5]
        assert report.standing is not None
        assert [attempt.epoch for attempt in report.attempts] == [1]
        assert "WAITING" in await world.timeline(run)


class TestRetry:
    async def test_what_the_job_allows_is_tried_again(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("user"))
        await failed(world, run, exit_code=3)
        row = await world.row(run)
        assert (row.state, row.tries, row.started_at, row.allocated_at) == ("WAITING", 1, None, None)
        assert row.condition is not None
        assert row.condition["code"] == "RETRY_BACKOFF"
        assert (row.condition["params"]["attempt"], row.condition["params"]["of"]) == (1, 2)

    async def test_the_last_attempts_end_is_the_runs(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("user"))
        await failed(world, run, exit_code=3)
        await world.settle(run)
        world.clock.pass_s(120)
        await failed(world, run, exit_code=4)
        row = await world.row(run)
        assert (row.state, row.end and row.end["exit_code"]) == ("FAILED", 4)
        assert [one.end and one.end["exit_code"] for one in (await world.report(run)).attempts] == [3, 4]

    async def test_tasks_of_an_earlier_attempt_stay_as_they_were(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("user"))
        attempt_id = await world.running(run)
        world.tell_started(attempt_id, 0, 0)
        world.tell_ended(attempt_id, 0, 1, 3)
        world.over(attempt_id, 3)
        await world.step(run)
        first = await tasks(world, run, 1)
        assert first[:3] == [("STOPPED", None), ("FAILED", 3), ("STOPPED", None)]
        assert {state for state, _ in await tasks(world, run)} == {"WAITING"}
        await world.settle(run)
        world.clock.pass_s(120)
        await world.running(run)
        assert await tasks(world, run, 1) == first
        assert await tasks(world, run, 2) == await tasks(world, run) == [("WAITING", None)] * 8
        for epoch in (0, 3):
            with pytest.raises(NotFound, match="NOT_FOUND"):
                await tasks(world, run, epoch)

    async def test_so_does_the_one_of_a_plain_job(self, world: RunWorld) -> None:
        run = await world.submit((), package=None, retry=retrying("user"), origin=world.HIDDEN)
        await failed(world, run, exit_code=3)
        assert await tasks(world, run, 1) == [("FAILED", 3)]
        assert await tasks(world, run) == [("WAITING", None)]
        await world.settle(run)
        world.clock.pass_s(120)
        await world.running(run)
        assert await tasks(world, run, 2) == [("RUNNING", None)]
        assert await tasks(world, run, 1) == [("FAILED", 3)]

    async def test_what_it_does_not_allow_ends_it(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("lost"))
        await failed(world, run, exit_code=3)
        assert (await world.row(run)).state == "FAILED"

    async def test_a_stop_never_retries(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("user", "lost", "platform"))
        attempt_id = await world.running(run)
        await world.stop(run)
        await world.step(run)
        world.over(attempt_id, EXIT_TASK_LOST)
        await world.step(run)
        assert (await world.row(run)).state == "STOPPED"

    async def test_a_lost_one_only_when_the_old_one_is_over(self, world: RunWorld) -> None:
        run = await world.submit(retry=retrying("lost"))
        attempt_id = await world.running(run)
        world.gateway.is_down = True
        await world.step(run)
        world.clock.pass_s(900)
        await world.step(run)
        assert await world.states(run) == ("WAITING", "COLLECTING")
        world.clock.pass_s(1000)
        await world.step(run, times=3)
        await world.admit()
        assert await world.states(run) == ("WAITING", "RELEASING")
        world.gateway.is_down = False
        world.clock.pass_s(90)
        await world.step(run)
        assert world.gateway.stopped == [attempt_id]
        await world.admit()
        assert (await world.row(run)).epoch == 1, "it still runs there"
        world.gateway.becomes(attempt_id, RayStatus.STOPPED)
        await world.step(run)
        await world.admit()
        row = await world.row(run)
        assert (row.state, row.epoch) == ("STARTING", 2)

    async def test_what_was_lost_has_time_to_end_by_itself(self, world: RunWorld) -> None:
        """A node that its head gave up may have been cut off only, with the task on it."""
        run = await world.submit(retry=retrying("lost"))
        await failed(world, run, exit_code=EXIT_TASK_LOST)
        await world.step(run)
        world.clock.pass_s(60)
        await world.step(run)
        await world.admit()
        assert await world.states(run) == ("WAITING", "RELEASING")
        world.clock.pass_s(30)
        await world.step(run)
        await world.admit()
        assert (await world.row(run)).epoch == 2

    async def test_a_plain_job_too(self, world: RunWorld) -> None:
        run = await world.submit((), package=None, retry=retrying("user"), origin=world.HIDDEN)
        await failed(world, run, exit_code=3)
        assert (await world.row(run)).state == "WAITING"


class TestStop:
    async def test_in_back_off_it_is_over_at_once(self, world: RunWorld) -> None:
        run = await world.submit()
        await given_back(world, run)
        await world.stop(run)
        row = await world.row(run)
        assert (row.state, row.end and row.end["code"]) == ("STOPPED", "BY_USER")
        await world.settle(run)
        await world.admit()
        assert (await world.row(run)).epoch == 1
        assert [phase.state for phase in (await world.report(run)).phases if phase.name == "running"] == ["skipped"]

    async def test_while_it_waits_for_places(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.placing(run)
        await world.stop(run)
        await world.step(run)
        assert await world.states(run) == ("STOPPING", "STOPPING")
        world.gateway.becomes(attempt_id, RayStatus.STOPPED)
        await world.step(run)
        assert await world.states(run) == ("STOPPED", "COLLECTING")


class TestMaxWait:
    async def test_time_until_a_start_that_was_given_back_counts(self, world: RunWorld) -> None:
        run = await world.submit(max_wait_s=50)
        world.clock.pass_s(20)
        await given_back(world, run)
        world.clock.pass_s(30)
        await world.admit()
        assert (await world.row(run)).state == "QUEUE_TIMEOUT"

    async def test_after_it_has_run_it_counts_anew(self, world: RunWorld) -> None:
        run = await world.submit(max_wait_s=50, retry=retrying("user"))
        world.clock.pass_s(20)
        await failed(world, run, exit_code=3)
        row = await world.row(run)
        assert row.waiting_since == world.clock.now() > row.enqueued_at
        world.clock.pass_s(49)
        await world.admit()
        assert (await world.row(run)).state == "WAITING"
        world.clock.pass_s(1)
        await world.admit()
        row = await world.row(run)
        assert (row.state, row.ended_at) == ("QUEUE_TIMEOUT", row.waiting_since + timedelta(seconds=50))


class TestUnseen:
    async def test_given_back_before_a_look_found_its_driver(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.sent(run)
        world.verdict(attempt_id, "placement", "GANG_TIMEOUT", EXIT_GANG_TIMEOUT, params=TIMEOUT)
        world.gateway.becomes(attempt_id, RayStatus.FAILED, exit_code=EXIT_GANG_TIMEOUT, driver_address=DRIVER_AGENT)
        await world.step(run)
        assert await world.states(run) == ("WAITING", "COLLECTING")
