"""The guard of a local node with real processes, none of them Ray's: whatever came of its command ends with it."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cluster_groups.backends import local_guard
from tests.builders.headless import HEADLESS, is_headless
from tests.builders.leaky import Leak, a_leak
from tests.builders.waiting import wait_until

GRACE_S = 0.5
GUARD = [sys.executable, "-I", "-S", local_guard.__file__, str(GRACE_S)]
SERVICE = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=2).pid)"
BREEDER = """trap '' TERM
breed() { while :; do setsid sleep 300 & (trap '' TERM; sleep 0.01; setsid sleep 300 &) & sleep 0.01; done; }
breed & wait"""
FORKER = """import mmap, os
memory = mmap.mmap(-1, 2**28, mmap.MAP_PRIVATE)  # so that a fork takes a while
memory.madvise(mmap.MADV_NOHUGEPAGE)
for place in range(0, len(memory), mmap.PAGESIZE):
    memory[place] = 1
print("ready", flush=True)
while True:
    child = os.fork() or os._exit(0)
    os.waitpid(child, 0)
"""
FREEZER = """import signal, subprocess, sys, time
from cluster_groups.backends import local_guard as guard
forker = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
forker.stdout.readline()
unseen = 0
for _ in range(10):
    frozen = guard._freeze()
    time.sleep(0.05)
    unseen += len(guard._descendants() - frozen)
    guard._send(signal.SIGCONT, frozen)
    time.sleep(0.01)
forker.kill()
print(unseen)
"""
Guarded = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def leak(tmp_path: Path) -> Iterator[Leak]:
    made = a_leak(tmp_path / "pids")
    yield made
    made.end()


@pytest.fixture
def guarded(leak: Leak) -> Iterator[Guarded]:
    """A guard whose leaky children all run, and whose bash does `then`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(then: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([*GUARD, "bash", "-c", leak.command(then)], start_new_session=True))
        wait_until(leak.all_started)
        return started[-1]

    yield start
    for guard in started:
        guard.kill()
        guard.wait()


@pytest.mark.parametrize(("then", "code"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_end_of_its_command_is_everybodys(guarded: Guarded, leak: Leak, then: str, code: int) -> None:
    assert guarded(f"sleep 0.5; {then}").wait(10) == code
    assert leak.survivors() == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_asked_to_end_it_ends_everybody(guarded: Guarded, leak: Leak, number: signal.Signals) -> None:
    guard = guarded("sleep 300")
    guard.send_signal(number)
    assert guard.wait(10) == 128 + signal.SIGTERM
    assert leak.survivors() == {}


def test_who_multiplies_does_not_get_away(guarded: Guarded, leak: Leak) -> None:
    guard = guarded(BREEDER)
    family = psutil.Process(guard.pid)
    wait_until(lambda: len(family.children(recursive=True)) > 50)
    guard.terminate()
    assert guard.wait(20) == 128 + signal.SIGKILL
    assert leak.survivors() == {}


def test_no_child_of_a_fork_under_way_goes_unseen() -> None:
    ended = subprocess.run([sys.executable, "-c", FREEZER, FORKER], check=True, stdout=subprocess.PIPE, text=True)
    assert ended.stdout == "0\n"


def test_a_process_without_its_first_thread_is_no_dead_one(guarded: Guarded) -> None:
    guard = guarded(f"exec {HEADLESS} & wait")
    family = psutil.Process(guard.pid)
    wait_until(lambda: any(is_headless(process) for process in family.children(recursive=True)))
    guard.terminate()
    guard.wait(10)


def test_killed_it_takes_its_command_along_but_not_what_had_left_that(guarded: Guarded, leak: Leak) -> None:
    """The limit told in docs/why/safety.md: most of the rest is found by its environment, this one by nothing."""
    guard = guarded("sleep 300")
    command = psutil.Process(guard.pid).children()[0]
    guard.kill()
    wait_until(lambda: _is_gone(command))
    assert "clean_environment" in leak.survivors().values()


def test_it_outlives_whoever_started_it(leak: Leak) -> None:
    command = [*GUARD, "bash", "-c", leak.command("sleep 300")]
    service = subprocess.run([sys.executable, "-c", SERVICE, *command], check=True, stdout=subprocess.PIPE)
    guard = psutil.Process(int(service.stdout))
    wait_until(leak.all_started)
    assert guard.name() == "muster-node"
    guard.terminate()
    wait_until(lambda: _is_gone(guard))
    assert leak.survivors() == {}


def test_a_command_that_is_not_there_is_told() -> None:
    ended = subprocess.run([*GUARD, "/no/such/command"], check=False, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 127
    assert ended.stderr == "muster: /no/such/command: No such file or directory\n"


def test_its_command_meets_no_signal_blocked() -> None:
    asked = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    ended = subprocess.run([*GUARD, sys.executable, "-c", asked], check=True, stdout=subprocess.PIPE, text=True)
    assert ended.stdout == "set()\n"


def _is_gone(process: psutil.Process) -> bool:
    """Or dead, and its new parent has yet to notice."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
