"""How a job of tasks ended: the last line of events.jsonl and the exit code. Classes and codes are `model/run.py`'s."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

from .spec import EXIT_GANG_TIMEOUT, EXIT_LEASE_LOST, EXIT_MAX_RUNTIME, EXIT_RUNNER_FAILED, EXIT_TASK_LOST

EXIT_STOPPED = 143
_MAX_MESSAGE = 4000


class Verdict(NamedTuple):
    """`group` and `task` name the task that brought it about, if one did."""

    end_class: str
    code: str | None
    exit_code: int
    group: int | None = None
    task: int | None = None
    params: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def killed_by(exit_code: int) -> str | None:
    """The name of signal n, if that killed the command: -n to whoever waited for it, 128 + n to a shell."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    if not 0 < number < signal.NSIG:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def max_runtime() -> Verdict:
    return Verdict("timeout", "MAX_RUNTIME", EXIT_MAX_RUNTIME)


def stopped() -> Verdict:
    """Muster asked for it, and knows better than the runner why."""
    return Verdict("stopped", None, EXIT_STOPPED)


def node_lost(group: int, task: int) -> Verdict:
    return Verdict("lost", "NODE_LOST", EXIT_TASK_LOST, group, task)


def lease_lost() -> Verdict:
    """We may not run here any more, or may not begin."""
    return Verdict("lost", "LEASE_LOST", EXIT_LEASE_LOST)


def gang_timeout(missing: int, wanted: int, gang_timeout_s: float) -> Verdict:
    params = {"missing": missing, "wanted": wanted, "gang_timeout_s": gang_timeout_s}
    return Verdict("placement", "GANG_TIMEOUT", EXIT_GANG_TIMEOUT, params=params)


def runtime_env_failed(message: str, group: int, task: int) -> Verdict:
    params = {"message": message[-_MAX_MESSAGE:]}
    return Verdict("environment", "RUNTIME_ENV_FAILED", EXIT_RUNNER_FAILED, group, task, params)


def runner_failed(message: str, exit_code: int = EXIT_RUNNER_FAILED) -> Verdict:
    return Verdict("platform", "RUNNER_FAILED", exit_code, params={"message": message[-_MAX_MESSAGE:]})
