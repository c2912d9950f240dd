"""The guard as an actor starts it: from a process with threads, through an interpreter of its own."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rayjobs.runner.clock import now_s
from rayjobs.runner.guard import Ended, Guard
from rayjobs.runner.spawn import Launch, spawn_guard
from rayjobs.runner.spec import EXIT_TASK_LOST
from tests.builders.leaky import Leak
from tests.builders.runner_process import unpacked_runner
from tests.builders.waiting import wait_until


class Spawned:
    def __init__(self, folder: Path, command: str, **limits: float) -> None:
        self.log = folder / "task.log"
        self.events_file = folder / "guard.jsonl"
        bootstrap = folder / "pai_bootstrap.sh"
        bootstrap.write_text(command)
        order = Launch(str(bootstrap), str(self.events_file), **{"stop_grace_s": 0.5, "max_runtime_s": None, **limits})
        environment = {"PATH": os.environ["PATH"], "ODD": os.fsdecode(b"\xff"), "PYTHONHOME": "/none"}
        self.guard: Guard = spawn_guard(order, environment, str(self.log), str(unpacked_runner(folder)))

    def events(self) -> list[str]:
        return [json.loads(line)["type"] for line in self.events_file.read_text().splitlines()]


@pytest.fixture(autouse=True)
def busy_thread() -> Iterator[None]:
    """Ray's workers have many."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


def test_tells_how_the_task_ended(tmp_path: Path) -> None:
    spawned = Spawned(tmp_path, 'printf %s "$ODD"; exit 3')
    assert spawned.guard.wait() == Ended(3, None, "EXITED")
    assert spawned.log.read_bytes() == b"\xff"
    assert spawned.events() == ["task_started", "task_ended", "verdict"]


def test_tells_the_signal(tmp_path: Path) -> None:
    assert Spawned(tmp_path, "kill -KILL $$").guard.wait() == Ended(137, signal.SIGKILL, "EXITED")


def test_stops_everybody(tmp_path: Path, leak: Leak) -> None:
    spawned = Spawned(tmp_path, leak.command("sleep 300"))
    wait_until(leak.all_started)
    spawned.guard.stop()
    assert spawned.guard.wait() == Ended(143, signal.SIGTERM, "STOPPED")
    assert leak.survivors() == {}


def test_what_ended_by_itself_was_not_stopped(tmp_path: Path) -> None:
    """Of tasks that fail together the first decides, and the stop may reach the others' guards with their ends."""
    goes_on = tmp_path / "goes-on"
    spawned = Spawned(tmp_path, f"until [ -e {goes_on} ]; do sleep 0.01; done; exit 3")
    wait_until(lambda: spawned.events_file.exists() and spawned.events() == ["task_started"])
    bash = psutil.Process(json.loads(spawned.events_file.read_text())["pid"])
    guard = psutil.Process(bash.ppid())
    guard.suspend()
    goes_on.touch()
    wait_until(lambda: bash.status() == psutil.STATUS_ZOMBIE)
    spawned.guard.stop()
    guard.resume()
    assert spawned.guard.wait() == Ended(3, None, "EXITED")


def test_ends_everybody_when_the_time_is_up(tmp_path: Path, leak: Leak) -> None:
    ended = Spawned(tmp_path, leak.command("sleep 300"), max_runtime_s=2).guard.wait()
    assert ended is not None
    assert ended.reason == "MAX_RUNTIME"
    assert leak.survivors() == {}


def test_ends_everybody_with_its_parent(tmp_path: Path, leak: Leak) -> None:
    """As a kill does, closing the parent's ends of the pipes leaves nobody else who holds them."""
    spawned = Spawned(tmp_path, leak.command("sleep 300"))
    wait_until(leak.all_started)
    os.close(spawned.guard._control_fd)
    wait_until(lambda: leak.survivors() == {}, say=leak.survivors)
    wait_until(lambda: "verdict" in spawned.events())


def test_is_ended_by_the_node_where_bash_was_signalled_too(tmp_path: Path) -> None:
    """As the guard of a local node does, and bash may be dead before the task's guard looks."""
    spawned = Spawned(tmp_path, "sleep 300")
    wait_until(lambda: spawned.events_file.exists() and spawned.events() == ["task_started"])
    bash = json.loads(spawned.events_file.read_text())["pid"]
    guard = psutil.Process(bash).ppid()
    for number in (signal.SIGSTOP, signal.SIGTERM):
        os.kill(guard, number)
        os.kill(bash, number)
    os.kill(bash, signal.SIGCONT)
    wait_until(lambda: psutil.Process(bash).status() == psutil.STATUS_ZOMBIE)
    os.kill(guard, signal.SIGCONT)
    assert spawned.guard.wait() == Ended(143, signal.SIGTERM, "NODE_ENDED")


def test_is_ended_by_the_node_although_its_parent_was_told_first(tmp_path: Path) -> None:
    """A node's guard signals everybody, and the parent passes it on as a stop."""
    deaf, seen = tmp_path / "deaf", tmp_path / "seen"
    command = f"trap '' TERM; touch {deaf}; until [ -e {seen} ]; do sleep 0.1; done"
    spawned = Spawned(tmp_path, command, stop_grace_s=60)
    wait_until(deaf.exists)
    guard = psutil.Process(json.loads(spawned.events_file.read_text())["pid"]).ppid()
    spawned.guard.stop()
    wait_until(lambda: "stopping" in spawned.events())
    os.kill(guard, signal.SIGTERM)
    seen.touch()
    ended = spawned.guard.wait()
    assert ended is not None
    assert (ended.reason, ended.exit_code) == ("NODE_ENDED", EXIT_TASK_LOST)


def test_lets_bash_inherit_neither_files_nor_blocked_signals(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as Ray does in its workers
    try:
        spawned = Spawned(tmp_path, "cat /proc/self/status; for fd in /proc/$$/fd/*; do readlink $fd; done; true")
        assert spawned.guard.wait() == Ended(0, None, "EXITED")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    said = spawned.log.read_text().splitlines()
    assert "SigBlk:\t0000000000000000" in said
    files = {line for line in said if line.startswith(("/", "pipe:"))}
    assert files == {os.devnull, str(spawned.log), str(tmp_path / "pai_bootstrap.sh")}


def test_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    order = Launch("bootstrap", "events", stop_grace_s=1, max_runtime_s=None)
    with pytest.raises(subprocess.CalledProcessError):
        spawn_guard(order, {}, str(tmp_path / "task.log"), str(tmp_path / "nowhere"))
    assert "muster_runner" in (tmp_path / "task.log").read_text()


class TestLease:
    def test_ends_everybody_when_it_is_over(self, tmp_path: Path, leak: Leak) -> None:
        spawned = Spawned(tmp_path, leak.command("sleep 300"), lease_until=now_s() + 1.5)
        wait_until(leak.all_started)
        assert spawned.guard.wait() == Ended(143, signal.SIGTERM, "LEASE_EXPIRED")
        assert leak.survivors() == {}

    def test_goes_on_for_as_long_as_it_is_held(self, tmp_path: Path) -> None:
        spawned = Spawned(tmp_path, "sleep 1.5; exit 3", lease_until=now_s() + 1)
        for rest_s in (1, 2, 600):
            spawned.guard.hold(now_s() + rest_s)
        assert spawned.guard.wait() == Ended(3, None, "EXITED")

    def test_is_over_at_once_when_it_is_told_so(self, tmp_path: Path) -> None:
        spawned = Spawned(tmp_path, "sleep 300", lease_until=now_s() + 600)
        spawned.guard.hold(now_s())
        assert spawned.guard.wait() == Ended(143, signal.SIGTERM, "LEASE_EXPIRED")

    def test_nothing_begins_after_it(self, tmp_path: Path) -> None:
        spawned = Spawned(tmp_path, f"touch {tmp_path}/began", lease_until=now_s() - 1)
        assert spawned.guard.wait() == Ended(0, None, "LEASE_EXPIRED")
        assert not (tmp_path / "began").exists()

    def test_cuts_the_grace_of_a_stop_short(self, tmp_path: Path) -> None:
        """Who relies on the lease's end does not know of the stop."""
        deaf = "trap '' TERM; touch up; while :; do sleep 0.1; done"
        spawned = Spawned(tmp_path, f"cd {tmp_path}; {deaf}", stop_grace_s=3, lease_until=now_s() + 600)
        wait_until((tmp_path / "up").exists)
        spawned.guard.stop()
        wait_until(lambda: "stopping" in spawned.events())
        spawned.guard.hold(now_s() - 2.5)
        asked_at = now_s()
        assert spawned.guard.wait() == Ended(137, signal.SIGKILL, "STOPPED")
        assert now_s() - asked_at < 2
