"""No process outlives its run (design.md §3.6), whatever ends it and however its children detach themselves."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rayjobs.dispatch import EXIT_GUARD_LOST, EXIT_MAX_RUNTIME
from rayjobs.runner.spec import EXIT_TASK_LOST
from tests.builders.leaky import Leak, a_leak
from tests.builders.runner_process import RunnerProcess
from tests.builders.waiting import wait_until

GRACE_S = 0.5
WITHIN_S = 5
Leaky = Callable[..., RunnerProcess]


@pytest.fixture
def leaky(tmp_path: Path, leak: Leak) -> Iterator[Leaky]:
    """A runner whose children all run, and whose bash does `then`."""
    started: list[RunnerProcess] = []

    def start(then: str = "sleep 300", **fields: Any) -> RunnerProcess:
        started.append(RunnerProcess(tmp_path, leak.command(then), **{"stop_grace_s": GRACE_S, **fields}))
        wait_until(leak.all_started, say=started[-1].output)
        return started[-1]

    yield start
    for one in started:
        one.close()


class TestNothingSurvives:
    def test_the_end_of_bash(self, leaky: Leaky, leak: Leak) -> None:
        runner = leaky("sleep 0.5; exit 7")
        assert runner.wait() == 7
        assert leak.survivors() == {}
        assert runner.event("stopping")["reason"] == runner.event("verdict")["reason"] == "EXITED"

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_stop(self, leaky: Leaky, leak: Leak, number: signal.Signals) -> None:
        runner = leaky()
        runner.process.send_signal(number)
        assert runner.wait() == 143
        assert leak.survivors() == {}
        assert runner.event("verdict")["reason"] == "STOPPED"

    @pytest.mark.parametrize("kill", [os.kill, os.killpg], ids=["alone", "with its group"])
    def test_the_death_of_the_runner(self, leaky: Leaky, leak: Leak, kill: Callable[[int, int], None]) -> None:
        runner = leaky()
        kill(runner.process.pid, signal.SIGKILL)
        wait_until(lambda: leak.survivors() == {}, WITHIN_S, leak.survivors)
        assert runner.wait_for("verdict")["reason"] == "PARENT_LOST"
        assert runner.event("task_ended")["exit_code"] == 143

    def test_the_death_of_bash(self, leaky: Leaky, leak: Leak) -> None:
        runner = leaky()
        os.kill(runner.event("task_started")["pid"], signal.SIGKILL)
        assert runner.wait() == 137
        assert leak.survivors() == {}

    def test_too_long_a_run(self, leaky: Leaky, leak: Leak) -> None:
        assert leaky(max_runtime_s=2).wait() == EXIT_MAX_RUNTIME
        assert leak.survivors() == {}

    def test_a_signal_to_the_guard_is_the_end_of_its_node(self, leaky: Leaky, leak: Leak) -> None:
        runner = leaky()
        os.kill(runner.guard(), signal.SIGTERM)
        assert runner.wait() == EXIT_TASK_LOST
        assert leak.survivors() == {}


class TestGuardKilled:
    @pytest.fixture
    def leak(self, tmp_path: Path) -> Iterator[Leak]:
        # With the guard gone only the mark and the session tell whose a process is; this child has dropped both.
        made = a_leak(tmp_path / "pids", without="clean_environment")
        yield made
        made.end()

    def test_the_runner_ends_the_rest(self, leaky: Leaky, leak: Leak) -> None:
        runner = leaky()
        os.kill(runner.guard(), signal.SIGKILL)
        assert runner.wait() == EXIT_GUARD_LOST
        assert leak.survivors() == {}
        assert "guard of this job was killed" in runner.output()
        assert [event["type"] for event in runner.events()] == ["task_started", "guard_lost", "verdict"]

    def test_bash_does_not_outlive_guard_and_runner(self, leaky: Leaky) -> None:
        runner = leaky()
        bash, guard = runner.event("task_started")["pid"], runner.guard()
        os.kill(runner.process.pid, signal.SIGSTOP)  # it cannot sweep
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{bash}/exe").exists())


class TestStop:
    def test_leaves_time_to_clean_up(self, tmp_path: Path) -> None:
        command = "trap 'sleep 0.3; echo cleaned; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        with closing(RunnerProcess(tmp_path, command, stop_grace_s=10)) as runner:
            wait_until(lambda: runner.output() == "ready\n")
            runner.process.terminate()
            assert runner.wait() == 5
        assert runner.output().endswith("cleaned\n")

    def test_in_the_middle_of_a_fork_is_not_missed(self, tmp_path: Path) -> None:
        for _ in range(20):
            with closing(RunnerProcess(tmp_path, "sleep 300", stop_grace_s=30)) as runner:
                events = runner.files / "events.jsonl"
                wait_until(events.exists)  # made just before bash is, which then makes its child
                runner.process.terminate()
                assert runner.wait(5) == 143
                events.unlink()

    def test_waits_without_spinning(self, tmp_path: Path) -> None:
        with closing(RunnerProcess(tmp_path, "trap '' TERM; sleep 300", stop_grace_s=1)) as runner:
            guard = runner.guard()
            used_s = [cpu_s(guard)]
            runner.process.kill()

            def over() -> bool:
                used_s.append(cpu_s(guard))
                return "verdict" in {event["type"] for event in runner.events()}

            wait_until(over)
        assert max(used_s) - used_s[0] < 0.2


class TestOrphans:
    def test_are_reaped_while_the_job_runs(self, tmp_path: Path) -> None:
        command = "for i in {1..30}; do (sleep 0.05 &); done; touch orphaned; sleep 300"
        with closing(RunnerProcess(tmp_path, command)) as runner:
            guard = runner.guard()
            wait_until((runner.work / "orphaned").exists)
            wait_until(lambda: len(children(guard)) == 1, say=lambda: children(guard))
            runner.process.terminate()
            assert runner.wait() == 143


def cpu_s(pid: int) -> float:
    """Negative when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[str]:
    """Zombies among them."""
    stats = (entry / "stat" for entry in Path("/proc").iterdir() if entry.name.isdigit())
    lines = [file.read_text() for file in stats if file.exists()]
    return [line for line in lines if line.rpartition(")")[2].split()[1] == str(pid)]
