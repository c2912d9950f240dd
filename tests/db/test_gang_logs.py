"""Logs of a gang's tasks: each from its own node while it grows and to its end, also when that node dies."""

from pathlib import Path

import pytest

from kernel.db import Database
from kernel.errors import InvalidInput, NotFound
from rayjobs.log_pages import LogPage, WhichLog, find_log, read_page
from rayjobs.logs import runner_folder
from tests.builders.run_world import DRIVER_AGENT, RunWorld, agent


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> RunWorld:
    return await RunWorld(database, tmp_path / "blobs").prepare()


def say(world: RunWorld, attempt_id: str, task: str, node: int, text: str) -> None:
    world.gateway.append(agent(node), f"{runner_folder(attempt_id)}/{task}.log", text.encode())


async def page(world: RunWorld, run_id: str, group: str | None = None, task: int | None = None) -> LogPage:
    row = await world.row(run_id)
    async with world.database.read() as session:
        found = await find_log(session, row, WhichLog(task_group=group, task=task))
    return await read_page(world.keeper, row, found, offset=0, limit_bytes=2**20)


class TestCopying:
    async def test_each_from_its_own_node_while_it_grows(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        say(world, attempt_id, "trainers-1", 2, "epoch 1\n")
        say(world, attempt_id, "helpers-0", 4, "hello\n")
        world.gateway.append(DRIVER_AGENT, f"job-driver-{attempt_id}.log", b"muster: all tasks have their places\n")
        assert await world.copy_logs(run) == 0.5
        assert (await page(world, run, "trainers", 1)).data == "epoch 1\n"
        assert (await page(world, run, "helpers", 0)).data == "hello\n"
        assert (await page(world, run)).data == "muster: all tasks have their places\n"
        say(world, attempt_id, "trainers-1", 2, "epoch 2\n")
        await world.copy_logs(run)
        assert (await page(world, run, "trainers", 1)).data == "epoch 1\nepoch 2\n"

    async def test_to_the_end_before_the_attempt_is_given_up(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        say(world, attempt_id, "trainers-0", 1, "last words")
        world.over(attempt_id, 3)
        await world.step(run, times=2)
        assert (await world.attempt(run)).state == "RELEASING"
        told = await page(world, run, "trainers", 0)
        assert (told.data, told.complete, told.note) == ("last words", True, None)
        assert (await page(world, run, "helpers", 4)).complete

    async def test_of_a_task_that_has_ended_nothing_more_is_asked(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        say(world, attempt_id, "trainers-0", 1, "done\n")
        world.tell_ended(attempt_id, 0, 0)
        await world.step(run)
        await world.copy_logs(run)
        assert (await page(world, run, "trainers", 0)).complete
        assert not (await page(world, run, "trainers", 1)).complete

    async def test_one_silent_node_holds_back_nobody_elses(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.gateway.silent_agents.add(agent(1))
        say(world, attempt_id, "trainers-1", 2, "here\n")
        await world.copy_logs(run)
        assert (await page(world, run, "trainers", 1)).data == "here\n"
        world.over(attempt_id, 3)
        await world.step(run, times=3)
        assert (await world.attempt(run)).state == "COLLECTING"
        world.clock.pass_s(61)
        await world.step(run)
        assert (await world.attempt(run)).state == "RELEASING"
        told = await page(world, run, "trainers", 0)
        assert (told.complete, told.note) == (True, "NODE_GONE")

    async def test_a_dead_nodes_is_closed_at_once(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        say(world, attempt_id, "helpers-4", 8, "so far\n")
        await world.copy_logs(run)
        await world.set_nodes("c1", 8, dead=1)
        world.over(attempt_id, 234)
        await world.step(run, times=2)
        told = await page(world, run, "helpers", 4)
        assert (told.data, told.complete, told.note) == ("so far\n", True, "NODE_GONE")
        assert (await world.attempt(run)).state == "RELEASING"

    async def test_a_cluster_that_is_gone_closes_all(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        world.over(attempt_id, 3)
        await world.step(run)
        world.gateway.is_down = True
        world.clock.pass_s(61)
        await world.step(run)
        assert (await world.attempt(run)).state == "RELEASING"
        assert (await page(world, run, "helpers", 4)).note == "CLUSTER_GONE"

    async def test_only_a_node_of_the_cluster_is_asked(self, world: RunWorld) -> None:
        run = await world.submit()
        attempt_id = await world.running(run)
        elsewhere = {"node_id": "node-1", "ip": "10.0.0.1", "host_ip": "10.0.0.1", "agent": "http://10.0.0.1:80"}
        world.tell(attempt_id, "task_placed", group=0, task=0, **elsewhere)
        world.gateway.append("http://10.0.0.1:80", f"{runner_folder(attempt_id)}/trainers-0.log", b"secret")
        await world.step(run)
        await world.copy_logs(run)
        assert (await page(world, run, "trainers", 0)).data == ""


class TestAsking:
    @pytest.mark.parametrize(("group", "task"), [("nobody", 0), ("trainers", 3)])
    async def test_unknown_tasks(self, world: RunWorld, group: str | None, task: int) -> None:
        run = await world.submit()
        with pytest.raises(NotFound):
            await page(world, run, group, task)

    async def test_of_several_groups_one_is_named(self, world: RunWorld) -> None:
        run = await world.submit()
        with pytest.raises(InvalidInput) as caught:
            await page(world, run, None, 0)
        assert (caught.value.code, caught.value.pointer) == ("TASK_GROUP_REQUIRED", "/task_group")
        assert caught.value.params == {"task_groups": ["trainers", "helpers"]}

    async def test_the_one_task_of_a_plain_job_is_its_driver(self, world: RunWorld) -> None:
        run = await world.submit((), origin=world.HIDDEN)
        attempt_id = await world.running(run)
        world.gateway.append(DRIVER_AGENT, f"job-driver-{attempt_id}.log", b"plain\n")
        await world.copy_logs(run)
        for group, task in ((None, None), ("main", 0), ("main", None), (None, 0)):
            assert (await page(world, run, group, task)).data == "plain\n"
        with pytest.raises(NotFound):
            await page(world, run, "main", 1)
