"""Gangs as stored: from the events of their runner to tasks, ends and what people see of them."""

from pathlib import Path
from typing import Any

import pytest

from kernel.db import Database
from rayjobs.decide.attempt import COLLECT_PATIENCE_S
from rayjobs.gateway.base import RayStatus
from rayjobs.model.run import TaskState
from rayjobs.run_report import report_tasks
from rayjobs.runner.spec import EXIT_GANG_TIMEOUT, EXIT_TASK_LOST, unpack
from tests.builders.run_world import DRIVER_AGENT, RunWorld, agent


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> RunWorld:
    return await RunWorld(database, tmp_path / "blobs").prepare()


class TestSubmission:
    async def test_the_runner_is_told_all_groups(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.sent(run)
        spec = unpack(world.gateway.sent[attempt_id].entrypoint.split()[-1])
        assert [(group.name, group.tasks, group.command) for group in spec.groups] == [
            ("trainers", 3, "python train.py"),
            ("helpers", 5, "python help.py"),
        ]
        assert (spec.attempt, spec.previous_cluster, spec.gang_timeout_s) == (1, None, 600)

    async def test_the_ledger_knows_which_nodes_it_will_have(self, world: RunWorld) -> None:
        run = await world.submit()
        await world.sent(run)
        assert set((await world.attempt(run)).placement) == {f"node-{number}" for number in range(1, 9)}


class TestPlacing:
    async def test_the_driver_alone_is_no_start(self, world: RunWorld) -> None:
        run = await world.submit()
        await world.placing(run)
        assert await world.states(run) == ("STARTING", "PLACING")
        row = await world.row(run)
        assert (row.started_at, row.allocated_at) == (None, None)

    async def test_it_runs_from_full_allocation_on(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.placing(run)
        world.clock.pass_s(10)
        world.tell_placed(attempt_id)
        allocated = world.clock.now()
        world.clock.pass_s(3)
        await world.step(run)
        assert await world.states(run) == ("RUNNING", "RUNNING")
        row, attempt = await world.row(run), await world.attempt(run)
        assert row.started_at == row.allocated_at == attempt.allocated_at == allocated
        assert set(attempt.placement) == {f"node-{number}" for number in range(1, 9)}
        assert [one for one in await world.timeline(run) if "GANG" in one] == ["GANG_WAITING", "GANG_ALLOCATED"]

    async def test_it_may_be_over_before_anybody_looks(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.sent(run)
        world.tell_placed(attempt_id)
        world.verdict(attempt_id, "completed", "ALL_TASKS_DONE", 0)
        world.gateway.becomes(attempt_id, RayStatus.SUCCEEDED, exit_code=0, driver_address=DRIVER_AGENT)
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.started_at) == ("SUCCEEDED", world.clock.now())


class TestEvents:
    async def test_tasks_as_told(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        for task in range(3):
            world.tell_started(attempt_id, 0, task)
        world.tell_ended(attempt_id, 0, 0, 0)
        world.tell_ended(attempt_id, 0, 1, 3)
        await world.step(run)
        tasks = await world.tasks(run)
        assert [tasks[0, task].state for task in range(3)] == ["SUCCEEDED", "FAILED", "RUNNING"]
        assert (tasks[0, 1].exit_code, tasks[0, 1].agent_address) == (3, agent(2))
        assert tasks[1, 4].state == TaskState.WAITING

    async def test_each_failed_task_is_told_once(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        for _ in range(2):
            world.tell_ended(attempt_id, 0, 1, 3)
            world.tell_ended(attempt_id, 0, 2, 0)
            await world.step(run)
        assert (await world.timeline(run)).count("TASK_ENDED") == 1

    async def test_half_a_line_waits_for_its_other_half(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.tell_raw(attempt_id, b'{"at": 1, "type": "task_started", "group"')
        await world.step(run)
        assert (await world.tasks(run))[0, 0].state == TaskState.WAITING
        world.tell_raw(attempt_id, b': 0, "task": 0}\n')
        await world.step(run)
        assert (await world.tasks(run))[0, 0].state == TaskState.RUNNING

    async def test_what_makes_no_sense_is_passed_over(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        for line in (
            b"nonsense",
            b"[]",
            b'{"type": "task_started", "at": 1, "group": 9, "task": 0}',
            b"\xff\xfe",
            b"1",
        ):
            world.tell_raw(attempt_id, line + b"\n")
        world.tell_started(attempt_id, 0, 0)
        await world.step(run)
        assert (await world.tasks(run))[0, 0].state == TaskState.RUNNING

    async def test_a_line_without_end_does_not_stop_the_reading(
        self, world: RunWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rayjobs.reconcile.gang.READ_BYTES", 1024)
        run = await world.submit()
        attempt_id = await world.placing(run)
        world.tell_raw(attempt_id, b"x" * 2000 + b"\n")
        world.tell(attempt_id, "gang_allocated")
        await world.step(run, times=3)
        assert (await world.row(run)).state == "RUNNING"

    async def test_a_write_that_came_too_late_is_made_good_by_the_next_look(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.tell_ended(attempt_id, 0, 1, 3)
        plan = await world.plan(run)
        await world.step(run)
        await world.apply_late(plan)
        assert (await world.timeline(run)).count("TASK_ENDED") == 1
        assert (await world.tasks(run))[0, 1].exit_code == 3


class TestEnds:
    async def end(self, world: RunWorld, exit_code: int, *verdict: Any, **facts: Any) -> dict[str, Any]:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.clock.pass_s(5)
        if verdict:
            world.verdict(attempt_id, *verdict, exit_code, **facts)
        world.over(attempt_id, exit_code)
        await world.step(run)
        row = await world.row(run)
        assert row.end is not None
        return row.end | {"state": row.state}

    async def test_the_verdict_tells_which_task_it_was(self, world: RunWorld) -> None:
        end = await self.end(world, 3, "user", "EXIT_NONZERO", group=1, task=2, params={"exit_code": 3})
        assert (end["state"], end["code"], end["task_group"], end["task"]) == ("FAILED", "EXIT_NONZERO", "helpers", 2)

    async def test_enough_succeeded(self, world: RunWorld) -> None:
        params = {"task_group": "trainers", "succeeded": 2}
        end = await self.end(world, 0, "completed", "MIN_SUCCEEDED", params=params)
        assert (end["state"], end["code"], end["params"]) == ("SUCCEEDED", "MIN_SUCCEEDED", params)

    async def test_a_node_was_lost(self, world: RunWorld) -> None:
        assert (await self.end(world, EXIT_TASK_LOST, "lost", "NODE_LOST"))["class"] == "lost"

    async def test_without_a_verdict_by_the_code_of_the_runner(self, world: RunWorld) -> None:
        assert (await self.end(world, EXIT_TASK_LOST))["code"] == "NODE_LOST"
        assert (await self.end(world, 0))["code"] == "ALL_TASKS_DONE"
        assert (await self.end(world, 7))["code"] == "EXIT_NONZERO"

    async def test_what_was_forged_counts_for_nothing(self, world: RunWorld) -> None:
        assert (await self.end(world, 7, "completed", "ALL_TASKS_DONE"))["state"] == "FAILED"
        assert (await self.end(world, 0, "user", "EXIT_NONZERO", params={"exit_code": 1}))["state"] == "SUCCEEDED"
        timeout = {"missing": 1, "wanted": 8, "gang_timeout_s": 600}
        back = await self.end(world, EXIT_GANG_TIMEOUT, "placement", "GANG_TIMEOUT", params=timeout)
        assert (back["state"], back["class"]) == ("FAILED", "user")
        assert (await self.end(world, 7, "lost", "NODE_LOST"))["class"] == "user"
        assert (await self.end(world, 1, "timeout", "MAX_RUNTIME"))["class"] == "user"

    async def test_a_stop_that_was_asked_for_wins(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        await world.stop(run)
        await world.step(run)
        world.verdict(attempt_id, "user", "EXIT_NONZERO", 3, params={"exit_code": 3})
        world.gateway.becomes(attempt_id, RayStatus.STOPPED)
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.end and row.end["code"]) == ("STOPPED", "BY_USER")

    async def test_a_silent_node_agent_is_asked_again_for_the_verdict(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.gateway.silent_agents.add(DRIVER_AGENT)
        world.verdict(attempt_id, "environment", "RUNTIME_ENV_FAILED", 232, params={"message": "no such package"})
        world.over(attempt_id, 232)
        await world.step(run)
        assert (await world.row(run)).state == "RUNNING"
        world.gateway.silent_agents.clear()
        await world.step(run)
        row = await world.row(run)
        assert (row.state, row.end and row.end["code"]) == ("FAILED", "RUNTIME_ENV_FAILED")

    async def test_a_silent_node_agent_does_not_hold_back_the_end_for_long(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.gateway.silent_agents.add(DRIVER_AGENT)
        world.over(attempt_id, 3)
        await world.step(run)
        world.clock.pass_s(COLLECT_PATIENCE_S)
        await world.step(run)
        assert (await world.row(run)).state == "FAILED"

    async def test_tasks_nobody_saw_end_are_stopped(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.tell_ended(attempt_id, 0, 0, 5)
        world.over(attempt_id, 5)
        await world.step(run)
        groups = (await world.report(run)).groups
        assert [(group.failed, group.stopped) for group in groups] == [(1, 2), (0, 5)]


class TestReport:
    async def test_tasks_without_a_place_wait(self, world: RunWorld) -> None:
        run = await world.submit()
        report = await world.report(run)
        assert [(one.name, one.index, one.count, one.waiting) for one in report.groups] == [
            ("trainers", 0, 3, 3),
            ("helpers", 1, 5, 5),
        ]
        async with world.database.read() as session:
            tasks = await report_tasks(session, report.row)
        assert [(task.group, task.index, task.state, task.host_ip) for task in tasks][:4] == [
            ("trainers", 0, "WAITING", None),
            ("trainers", 1, "WAITING", None),
            ("trainers", 2, "WAITING", None),
            ("helpers", 0, "WAITING", None),
        ]

    async def test_tasks_and_counts_of_a_running_one(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.tell_started(attempt_id, 0, 0)
        world.tell_ended(attempt_id, 1, 4, 9)
        await world.step(run)
        report = await world.report(run)
        assert [(one.waiting, one.running, one.failed) for one in report.groups] == [(2, 1, 0), (4, 0, 1)]
        assert report.failed_tasks == 1
        async with world.database.read() as session:
            tasks = await report_tasks(session, report.row)
        last = tasks[-1]
        assert (last.group, last.group_index, last.index, last.exit_code) == ("helpers", 1, 4, 9)
        assert last.container_ip == "127.0.1.8"

    async def test_phases(self, world: RunWorld) -> None:
        run = await world.submit()
        await world.placing(run)
        phases = {phase.name: phase.state for phase in (await world.report(run)).phases}
        assert phases == {
            "queue": "done", "environment": "done", "gang": "active", "running": "pending", "release": "pending",
        }  # fmt: skip

    async def test_phases_with_a_cluster_of_its_own(self, world: RunWorld) -> None:
        run = await world.submit(run_mode=world.ON_DEMAND)
        await world.admit()
        await world.look_at_cluster(run)
        seen = [await self.active(world, run)]
        await world.node_up(run)
        seen.append(await self.active(world, run))
        await world.own_cluster_up(run)
        await world.step(run, times=2)
        seen.append(await self.active(world, run))
        attempt_id = await world.attempt_id(run)
        world.gateway.becomes(attempt_id, RayStatus.RUNNING, driver_address=DRIVER_AGENT)
        await world.step(run)
        seen.append(await self.active(world, run))
        world.tell_placed(attempt_id)
        await world.step(run)
        seen.append(await self.active(world, run))
        assert seen == ["cluster", "nodes", "environment", "gang", "running"]
        names = [phase.name for phase in (await world.report(run)).phases]
        assert names == ["queue", "cluster", "nodes", "environment", "gang", "running", "release"]

    async def active(self, world: RunWorld, run: str) -> str:
        (phase,) = [phase for phase in (await world.report(run)).phases if phase.state == "active"]
        return phase.name
