"""A plain job's entrypoint: write the task's files, run its command under a guard, leave with its exit code.

Ray starts and stops this process; whatever becomes of it, the guard sees to the rest. A job of tasks goes on in `gang`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from .environment import bootstrap_text, node_ip, process_environment, task_variables
from .events import EventLog
from .guard import Task, start_guard
from .lease import Lease
from .processes import MARK, signal_pipe, sweep
from .spec import EXIT_GUARD_LOST, EXIT_RUNNER_FAILED, RunnerSpec, unpack
from .verdict import lease_lost


def main(home: str) -> NoReturn:
    """`home` is the folder on PYTHONPATH that Ray unpacked us to."""
    try:
        code = _run(unpack(sys.argv[1]), home)
    except Exception as error:  # noqa: BLE001  whatever it is, it is no end of the user's command
        print(f"muster: the job could not be started: {error}", file=sys.stderr, flush=True)
        code = EXIT_RUNNER_FAILED
    os._exit(code)


def _run(spec: RunnerSpec, home: str) -> int:
    folder = _folder(spec.submission_id)
    lease = Lease(spec.lease) if spec.lease else None
    if lease is not None and not lease.take():
        return _not_begun(folder)
    return (_run_gang if spec.groups else _run_plain)(spec, home, folder, lease)


def _not_begun(folder: str) -> int:
    verdict = lease_lost()
    EventLog(os.path.join(folder, "events.jsonl")).write("verdict", **verdict._asdict())
    words = "muster: Muster does not let this attempt run, or cannot be reached; nothing was started"
    print(words, file=sys.stderr, flush=True)
    return verdict.exit_code


def _run_gang(spec: RunnerSpec, home: str, folder: str, lease: Lease | None) -> int:
    import site  # noqa: PLC0415 - the entrypoint left it out; it adds where Ray is, and nothing of the user's

    site.main()
    from .gang import run_gang  # noqa: PLC0415

    return run_gang(spec, home, folder, lease)


def _run_plain(spec: RunnerSpec, home: str, folder: str, lease: Lease | None) -> int:
    signals_fd = signal_pipe(signal.SIGTERM, signal.SIGINT)
    bootstrap = os.path.join(folder, "pai_bootstrap.sh")
    ip = node_ip()
    variables = task_variables(spec, [[ip]], group=0, task=0, host_ip=ip, bootstrap=bootstrap)
    with open(bootstrap, "wb") as file:
        file.write(bootstrap_text(variables, spec.command))
    mark = os.urandom(8).hex()
    log = EventLog(os.path.join(folder, "events.jsonl"), group=0, task=0, ip=ip, host_ip=ip)
    guard = start_guard(
        Task(
            bootstrap=bootstrap,
            environment={**process_environment(os.environ, home), MARK: mark},
            stop_grace_s=spec.stop_grace_s,
            max_runtime_s=spec.max_runtime_s,
            log=log,
            lease_until=lease.until if lease else None,
        )
    )
    if lease is not None:  # only now: whoever forks has no threads
        lease.keep(guard.hold)
    ended = guard.wait(signals_fd)
    if ended is not None:
        return ended.exit_code
    log.write("guard_lost")
    print("muster: the guard of this job was killed; ending the job", file=sys.stderr, flush=True)
    sweep(mark, guard.session)
    log.write("verdict", exit_code=EXIT_GUARD_LOST, reason="GUARD_LOST")
    return EXIT_GUARD_LOST


def _folder(submission_id: str) -> str:
    """Beside the driver's log, where the node's agent serves it; elsewhere only without Ray."""
    output = os.readlink("/proc/self/fd/1")
    if os.path.basename(output) == f"job-driver-{submission_id}.log":
        folder = os.path.join(os.path.dirname(output), "muster", submission_id)
        os.makedirs(folder, exist_ok=True)
        return folder
    import tempfile  # noqa: PLC0415 - seldom needed, and slow to load

    return tempfile.mkdtemp(prefix=f"muster-{submission_id}-")
