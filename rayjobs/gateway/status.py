"""Pure: what Ray says of a job → why the attempt is over. Error types as in ray-jobs docs, `JobErrorType`."""

import re
from dataclasses import dataclass, replace

from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.gateway.setup_failure import judge_setup
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.runner.spec import (
    EXIT_GANG_TIMEOUT,
    EXIT_GUARD_LOST,
    EXIT_LEASE_LOST,
    EXIT_MAX_RUNTIME,
    EXIT_RUNNER_FAILED,
    EXIT_TASK_LOST,
)
from rayjobs.runner.verdict import killed_by

MAX_MESSAGE = 4000

_RUNNERS_WORDS = re.compile(r"^muster: (.+)$", re.MULTILINE)
"""Among the last lines of the driver's log, with which Ray says why it failed."""

_BY_ERROR_TYPE = {
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": (EndClass.PLACEMENT, EndCode.DRIVER_NOT_STARTED),
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": (EndClass.PLACEMENT, EndCode.DRIVER_NOT_STARTED),
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": (EndClass.PLATFORM, EndCode.DRIVER_NOT_STARTED),
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": (EndClass.PLATFORM, EndCode.DRIVER_NOT_STARTED),
    "JOB_SUPERVISOR_ACTOR_DIED": (EndClass.LOST, EndCode.DRIVER_LOST),
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": (EndClass.PLATFORM, EndCode.DRIVER_LOST),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GangSight:
    """What else is known of a gang's end: its runner's word, and whether its tasks ever had their places."""

    verdict: End | None
    was_placed: bool


def judge_end(
    job: RayJob,
    *,
    stop_code: EndCode | None,
    time_is_up: bool,
    gang: GangSight | None = None,
    has_lease: bool = False,
) -> End | None:
    """None while it is not over.

    `stop_code` says what a STOPPED is due to, when Muster asked for the stop. `time_is_up` tells the runner's own
    exit code for "ran longer than `max_runtime_s`" from a user's program that happens to exit with the same number;
    `has_lease` does so for "might not go on".
    """
    if job.status in {RayStatus.PENDING, RayStatus.RUNNING}:
        return None
    verdict = gang.verdict if gang else None
    if job.status is RayStatus.SUCCEEDED:
        if verdict is not None and verdict.end_class is EndClass.COMPLETED:
            return verdict
        return End(end_class=EndClass.COMPLETED, code=EndCode.ALL_TASKS_DONE, exit_code=0)
    if job.status is RayStatus.STOPPED:
        return End(end_class=EndClass.STOPPED, code=stop_code or EndCode.STOPPED_OUTSIDE)
    if job.error_type == "RUNTIME_ENV_SETUP_FAILURE":
        return judge_setup(job.message or "")
    known = _BY_ERROR_TYPE.get(job.error_type or "")
    if known is not None:
        return End(end_class=known[0], code=known[1], params={"message": (job.message or "")[-MAX_MESSAGE:]})
    if gang is not None and stop_code is None:
        said = _judge_gang(job, gang, time_is_up=time_is_up, has_lease=has_lease)
        if said is not None:
            return said
    return _judge_exit(job, stop_code, time_is_up=time_is_up, has_lease=has_lease)


def _judge_gang(job: RayJob, gang: GangSight, *, time_is_up: bool, has_lease: bool) -> End | None:
    """By the runner's verdict where it goes with its exit code; without one by that code, less what it cannot mean.

    The user's code could write a verdict, and a task may exit with any number, so neither alone is believed.
    """
    code, verdict = job.exit_code, gang.verdict
    possible = {
        EndClass.USER: True,
        EndClass.LOST: code == EXIT_TASK_LOST or (has_lease and code == EXIT_LEASE_LOST),
        EndClass.PLACEMENT: code == EXIT_GANG_TIMEOUT and not gang.was_placed,
        EndClass.TIMEOUT: code == EXIT_MAX_RUNTIME and time_is_up,
        EndClass.ENVIRONMENT: code == EXIT_RUNNER_FAILED,
        EndClass.PLATFORM: code in {EXIT_GUARD_LOST, EXIT_RUNNER_FAILED},
    }
    if code is None:
        return None
    if verdict is not None and possible.get(verdict.end_class, False):
        return _with_cause(verdict)
    if code == EXIT_GANG_TIMEOUT and not gang.was_placed:
        return End(end_class=EndClass.PLACEMENT, code=EndCode.GANG_TIMEOUT, exit_code=code)
    if code == EXIT_TASK_LOST:
        return End(end_class=EndClass.LOST, code=EndCode.NODE_LOST, exit_code=code)
    return None


def _with_cause(verdict: End) -> End:
    """A runner repeats what Ray said of the runtime_env of its actor."""
    if verdict.code is not EndCode.RUNTIME_ENV_FAILED:
        return verdict
    cause = judge_setup(str(verdict.params["message"]))
    return replace(verdict, code=cause.code, params=cause.params)


def _judge_exit(job: RayJob, stop_code: EndCode | None, *, time_is_up: bool, has_lease: bool) -> End:
    code = job.exit_code
    if code is None:
        message = (job.message or "")[-MAX_MESSAGE:]
        return End(end_class=EndClass.PLATFORM, code=EndCode.DRIVER_LOST, params={"message": message})
    if stop_code is not None:
        return End(end_class=EndClass.STOPPED, code=stop_code, exit_code=code)
    if code == EXIT_MAX_RUNTIME and time_is_up:
        return End(end_class=EndClass.TIMEOUT, code=EndCode.MAX_RUNTIME, exit_code=code)
    if code == EXIT_LEASE_LOST and has_lease:
        return End(end_class=EndClass.LOST, code=EndCode.LEASE_LOST, exit_code=code)
    if code == EXIT_TASK_LOST:
        return End(end_class=EndClass.LOST, code=EndCode.NODE_LOST, exit_code=code)
    if code in {EXIT_GUARD_LOST, EXIT_RUNNER_FAILED}:
        said = _RUNNERS_WORDS.findall(job.message or "")
        params = {"message": said[-1][:MAX_MESSAGE] if said else f"exit code {code}"}
        return End(end_class=EndClass.PLATFORM, code=EndCode.RUNNER_FAILED, exit_code=code, params=params)
    if name := killed_by(code):
        return End(end_class=EndClass.USER, code=EndCode.SIGNAL, exit_code=code, params={"signal": name})
    return End(end_class=EndClass.USER, code=EndCode.EXIT_NONZERO, exit_code=code, params={"exit_code": code})
