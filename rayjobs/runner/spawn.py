"""A guard started from a process with threads, such as Ray's: there nothing but exec may follow a fork.

So a small interpreter comes first, alone in its process, and forks the guard as a plain job's runner does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from .events import EventLog
from .guard import Guard, Task, leave

_LAUNCH = "import sys; sys.path.append(sys.argv[1]); from muster_runner.spawn import launch; launch(*sys.argv[2:])"


class Launch(NamedTuple):
    """What the guard is to know; its own account of the task goes to the file `events`."""

    bootstrap: str
    events: str
    stop_grace_s: float
    max_runtime_s: float | None
    lease_until: float | None = None


def spawn_guard(order: Launch, environment: Mapping[str, str], output: str, home: str) -> Guard:
    """The task's output is appended to the file `output`; `home` is the folder this package was unpacked to."""
    parent_fd, control_fd = os.pipe()
    report_fd, result_fd = os.pipe()
    try:
        with open(output, "ab", buffering=0) as log:
            subprocess.run(  # noqa: S603 - ourselves
                [sys.executable, "-I", "-S", "-c", _LAUNCH, home, json.dumps(order), str(parent_fd), str(result_fd)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(parent_fd, result_fd),
                check=True,
            )
    finally:
        os.close(parent_fd)
        os.close(result_fd)
    return Guard(control_fd, report_fd)


def launch(order: str, parent_fd: str, result_fd: str) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Ray blocks SIGINT in its workers
    launched = Launch(*json.loads(order))
    task = Task(
        bootstrap=launched.bootstrap,
        environment=dict(os.environ),
        stop_grace_s=launched.stop_grace_s,
        max_runtime_s=launched.max_runtime_s,
        log=EventLog(launched.events),
        lease_until=launched.lease_until,
    )
    for fd in (parent_fd, result_fd):
        os.set_inheritable(int(fd), False)  # noqa: FBT003 - bash shall not hold our pipes
    leave(task, int(parent_fd), int(result_fd))
