"""The runner as a real process, without Ray: exit codes, the user's surroundings, events."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayjobs.dispatch import EXIT_MAX_RUNTIME, EXIT_RUNNER_FAILED, RunnerSpec, entrypoint, runner_package
from rayjobs.runner.events import EventLog
from tests.builders.runner_process import RunnerProcess, unpacked_runner
from tests.builders.waiting import wait_until

Run = Callable[..., RunnerProcess]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    started: list[RunnerProcess] = []

    def start(command: str, **fields: Any) -> RunnerProcess:
        started.append(RunnerProcess(tmp_path, command, **fields))
        return started[-1]

    yield start
    for one in started:
        one.close()


class TestExitCode:
    @pytest.mark.parametrize(
        ("command", "code"),
        [
            ("true", 0),
            ("false", 1),
            ("exit 42", 42),
            ("no-such-program", 127),
            ("kill -KILL $$", 137),
            ("kill -TERM $$", 143),
            ("bash -c 'kill -SEGV $$'", 139),
            ("", 0),
        ],
    )
    def test_is_that_of_the_command(self, run: Run, command: str, code: int) -> None:
        assert run(command).wait() == code

    def test_of_too_long_a_run_is_our_own(self, run: Run) -> None:
        runner = run("sleep 60", max_runtime_s=0.2)
        assert runner.wait() == EXIT_MAX_RUNTIME
        assert runner.event("verdict")["reason"] == "MAX_RUNTIME"
        assert runner.event("task_ended")["exit_code"] == 143

    def test_max_runtime_may_be_longer_than_poll_can_wait(self, run: Run) -> None:
        assert run("exit 3", max_runtime_s=1e9).wait() == 3


class TestEvents:
    def test_of_a_run(self, run: Run) -> None:
        runner = run("exit 3")
        runner.wait()
        started, ended, verdict = runner.events()
        where = {"group": 0, "task": 0, "ip": "127.0.0.1", "host_ip": "127.0.0.1"}
        pid = started["pid"]
        assert started == {"at": started["at"], "type": "task_started", **where, "pid": pid}
        assert ended == {"at": ended["at"], "type": "task_ended", **where, "pid": pid, "exit_code": 3, "signal": None}
        assert verdict == {"at": verdict["at"], "type": "verdict", **where, "exit_code": 3, "reason": "EXITED"}
        assert started["at"] <= ended["at"] <= verdict["at"]

    def test_name_the_signal(self, run: Run) -> None:
        runner = run("kill -KILL $$")
        runner.wait()
        assert runner.event("task_ended")["signal"] == 9

    def test_a_full_disk_is_not_an_error(self) -> None:
        log = EventLog("/dev/full")
        log.write("task_started")
        os.close(log.fd)

    def test_a_folder_that_is_gone_is_not_an_error(self, tmp_path: Path) -> None:
        EventLog(str(tmp_path / "gone" / "events.jsonl")).write("task_started")


class TestSurroundings:
    def test_the_bootstrap_file_is_what_runs(self, run: Run) -> None:
        runner = run("""echo "$PAI_TASK_INDEX" '$PAI_TASK_INDEX' "$0" "$PAI_BOOTSTRAP_PATH" """)
        runner.wait()
        bootstrap = runner.files / "pai_bootstrap.sh"
        assert runner.output() == f"0 $PAI_TASK_INDEX {bootstrap} {bootstrap}\n"

    def test_values_of_the_environment_stay_out_of_the_file(self, run: Run) -> None:
        runner = run('echo "$API_KEY"', environment={"API_KEY": "hush"})
        runner.wait()
        assert runner.output() == "hush\n"
        assert "hush" not in (runner.files / "pai_bootstrap.sh").read_text()

    def test_ours_come_before_the_users(self, run: Run) -> None:
        runner = run(
            "echo $MUSTER_RUN_ID $PAI_TASK_INDEX $PREVIOUS", environment={"MUSTER_RUN_ID": "x", "PAI_TASK_INDEX": "7"}
        )
        runner.wait()
        assert runner.output() == "run_1 0\n"

    @pytest.mark.parametrize("module", ["json", "os", "sitecustomize", "encodings", "muster_runner"])
    def test_the_users_files_do_not_shadow_ours(self, run: Run, tmp_path: Path, module: str) -> None:
        work = tmp_path / "work"
        work.mkdir()
        (work / f"{module}.py").write_text("raise SystemExit(99)")
        path = f"{work}{os.pathsep}{unpacked_runner(tmp_path)}"
        runner = run(
            "echo $PYTHONPATH", environment={"PYTHONPATH": path, "PYTHONSTARTUP": "x.py", "PYTHONHOME": "/none"}
        )
        assert (runner.wait(), runner.output()) == (0, f"{work}\n")

    def test_bytes_that_are_no_text_pass(self, run: Run) -> None:
        odd = b"\xff\xfe"
        runner = run("printf %s $ODD; printf '\\377'", environment={"ODD": os.fsdecode(odd)})
        runner.wait()
        assert runner.log.read_bytes() == b"\xff\xfe\xff"

    def test_large_output_arrives_whole(self, run: Run) -> None:
        runner = run("head -c 20000000 /dev/zero; head -c 1000000 /dev/zero >&2")
        assert runner.wait() == 0
        assert runner.log.stat().st_size == 21_000_000

    def test_signals_have_their_default_meaning(self, run: Run) -> None:
        runner = run("cat /proc/self/status")
        runner.wait()
        status = dict(line.split(":\t") for line in runner.output().splitlines())
        known = 2**31 - 1  # beyond 31 are signals of the C library, which it lets nobody set
        assert [int(status[name], 16) & known for name in ("SigBlk", "SigIgn", "SigCgt")] == [0, 0, 0]

    def test_no_foreign_file_stays_open(self, run: Run) -> None:
        runner = run("mkfifo gate; read < gate")
        wait_until((runner.work / "gate").exists)  # so bash is bash now
        bash = runner.event("task_started")["pid"]
        pipes_of_the_guard = 4  # from the parent, to the parent, both ends of its own for signals
        held = open_files(runner.guard())
        assert sorted(set(held)) == sorted({"pipe", os.devnull, str(runner.files / "events.jsonl")})
        assert held.count("pipe") == pipes_of_the_guard
        assert set(open_files(bash)) <= {os.devnull, str(runner.log), str(runner.files / "pai_bootstrap.sh")}


class TestWithoutRay:
    def test_a_missing_package_is_said(self) -> None:
        spec = RunnerSpec(submission_id="a", run_id="run_1", attempt=1, command="true")
        done = subprocess.run(
            ["/bin/sh", "-c", entrypoint(spec, runner_package())],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            check=False,
        )
        assert done.returncode == EXIT_RUNNER_FAILED
        assert done.stderr.startswith(b"muster: ")

    def test_output_to_somewhere_else_will_do(self, tmp_path: Path) -> None:
        spec = RunnerSpec(submission_id="a", run_id="run_1", attempt=1, command='cat "$PAI_BOOTSTRAP_PATH"; exit 4')
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(unpacked_runner(tmp_path)),
            "TMPDIR": str(tmp_path),
        }
        done = subprocess.run(
            ["/bin/sh", "-c", entrypoint(spec, runner_package())], env=environment, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (4, b"")
        assert b'cat "$PAI_BOOTSTRAP_PATH"; exit 4' in done.stdout

    def test_a_folder_that_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        log = tmp_path / "logs" / "job-driver-run_1-a1.log"
        log.parent.mkdir()
        (log.parent / "muster").write_text("in the way")
        runner = RunnerProcess(tmp_path, "true")
        assert runner.wait() == EXIT_RUNNER_FAILED
        assert runner.output().startswith("muster: the job could not be started: ")


def open_files(pid: int) -> list[str]:
    links = (str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return ["pipe" if link.startswith("pipe:") else link for link in links]
