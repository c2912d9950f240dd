"""What counts as a process that is still there."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from rayjobs.runner.processes import descendants, process
from tests.builders.headless import HEADLESS, is_headless
from tests.builders.waiting import wait_until


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["bash", "-c", f"{HEADLESS} & {sys.executable} -c pass & wait %1"])
    yield started
    for one in [*psutil.Process(started.pid).children(recursive=True), started]:
        one.kill()
    started.wait()


def test_one_whose_first_thread_has_ended_is_there(shell: subprocess.Popen[bytes]) -> None:
    family = psutil.Process(shell.pid)
    wait_until(lambda: any(is_headless(one) for one in family.children()))
    (headless,) = [one.pid for one in family.children() if is_headless(one)]
    assert headless in descendants(shell.pid)


def test_one_that_waits_for_its_parent_is_not() -> None:
    with subprocess.Popen(["true"]) as ended:
        wait_until(lambda: psutil.Process(ended.pid).status() == psutil.STATUS_ZOMBIE)
        assert process(ended.pid) is None
