"""Pure: a run as Ray's `JobDetails`, which the client takes only with Ray's own statuses and whole numbers."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from api.conditions import condition_words
from api.texts import Language, Words, say
from rayjobs.model.job import JobSpec
from rayjobs.model.run import End, EndClass, EndCode, RunState
from rayjobs.run_report import RunReport

_STATUS: Mapping[RunState, str] = {
    RunState.SUBMITTED: "PENDING",
    RunState.WAITING: "PENDING",
    RunState.STARTING: "PENDING",
    RunState.RUNNING: "RUNNING",
    RunState.STOPPING: "RUNNING",
    RunState.SUCCEEDED: "SUCCEEDED",
    RunState.FAILED: "FAILED",
    RunState.STOPPED: "STOPPED",
    RunState.QUEUE_TIMEOUT: "FAILED",
}

_ERROR_TYPE: Mapping[EndCode, str] = {
    EndCode.EXIT_NONZERO: "JOB_ENTRYPOINT_COMMAND_ERROR",
    EndCode.SIGNAL: "JOB_ENTRYPOINT_COMMAND_ERROR",
    EndCode.MIN_FAILED: "JOB_ENTRYPOINT_COMMAND_ERROR",
    EndCode.RUNNER_FAILED: "JOB_ENTRYPOINT_COMMAND_START_ERROR",
    EndCode.RUNTIME_ENV_FAILED: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.RUNTIME_ENV_TIMEOUT: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.DEPENDENCY_NOT_FOUND: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.DEPENDENCY_CONFLICT: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.DEPENDENCY_NOT_INSTALLABLE: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.PACKAGE_INDEX_UNREACHABLE: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.CONDA_NOT_FOUND: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.PACKAGE_MISSING: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.PACKAGE_TOO_LARGE_FOR_CLUSTER: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.MOUNT_IMPOSSIBLE: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.CALLBACK_NEEDED: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.NODE_NOT_PREPARED: "RUNTIME_ENV_SETUP_FAILURE",
    EndCode.START_TIMEOUT: "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
    EndCode.SUBMIT_REFUSED: "JOB_SUPERVISOR_ACTOR_START_FAILURE",
    EndCode.CLUSTER_START_FAILED: "JOB_SUPERVISOR_ACTOR_START_FAILURE",
    EndCode.DRIVER_LOST: "JOB_SUPERVISOR_ACTOR_DIED",
    EndCode.HEAD_LOST: "JOB_SUPERVISOR_ACTOR_DIED",
    EndCode.NODE_LOST: "JOB_SUPERVISOR_ACTOR_DIED",
    EndCode.LEASE_LOST: "JOB_SUPERVISOR_ACTOR_DIED",
    EndCode.CLUSTER_LOST: "JOB_SUPERVISOR_ACTOR_DIED",
    EndCode.CLUSTER_DELETED: "JOB_SUPERVISOR_ACTOR_DIED",
}
"""Ray's name for an end; where it has none, ours is shown."""

_NOW: Mapping[RunState, str] = {
    RunState.SUBMITTED: "RAY_JOB_SUBMITTED",
    RunState.WAITING: "RAY_JOB_SUBMITTED",
    RunState.STARTING: "RAY_JOB_STARTING",
    RunState.RUNNING: "RAY_JOB_RUNNING",
    RunState.STOPPING: "RAY_JOB_STOPPING",
}
"""What is to be said where no condition says more."""


def ray_status(state: str) -> str:
    return _STATUS[RunState(state)]


def job_details(report: RunReport, spec: JobSpec, language: Language) -> dict[str, Any]:
    run, end = report.row, report.end
    return {
        "type": "SUBMISSION",
        "job_id": None,
        "submission_id": run.client_id,
        "driver_info": None,
        "status": ray_status(run.state),
        "entrypoint": spec.entrypoint,
        "message": _message(report, language),
        "error_type": _error_type(end),
        "start_time": _ms(run.created_at),
        "end_time": _ms(run.ended_at) if run.ended_at else None,
        "metadata": dict(spec.metadata),
        "runtime_env": dict(spec.runtime_env),
        "driver_agent_http_address": None,
        "driver_node_id": None,
        "driver_exit_code": end.exit_code if end and end.end_class is not EndClass.STOPPED else None,
    }


def _error_type(end: End | None) -> str | None:
    if end is None or end.end_class in {EndClass.COMPLETED, EndClass.STOPPED}:
        return None
    if end.code is EndCode.DRIVER_NOT_STARTED:
        why = "UNSCHEDULABLE" if end.end_class is EndClass.PLACEMENT else "START_FAILURE"
        return f"JOB_SUPERVISOR_ACTOR_{why}"
    return _ERROR_TYPE.get(end.code, str(end.code))


def _message(report: RunReport, language: Language) -> str:
    """The one field in which people see why: what is, what to do, and the place in the queue or the exit code."""
    return " ".join(text for one in _said(report, language) for text in (one.detail, one.advice) if text)


def _said(report: RunReport, language: Language) -> Iterator[Words]:
    run, end, condition = report.row, report.end, report.condition
    if end is not None:
        yield say(end.code, {"exit_code": end.exit_code, **end.params}, language)
        if end.exit_code and end.code is not EndCode.EXIT_NONZERO:
            yield say("RAY_EXIT_CODE", {"exit_code": end.exit_code}, language)
        return
    if condition is not None:
        yield condition_words(condition, language)
    else:
        yield say(_NOW[RunState(run.state)], {"cluster": run.cluster}, language)
    if report.standing is not None:
        yield say("RAY_PLACE_IN_QUEUE", {"position": report.standing.position}, language)


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)
