"""Which failures at submit speak against a cluster; what a user did never does (policy.md §3)."""

import pytest

from rayjobs.decide.attempt import Action, Do, Problem, Seen, failed_submit
from rayjobs.decide.attempt_outcome import advance
from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.model.run import AttemptState
from tests.builders.runs import NOW, an_attempt

PENDING = RayJob(status=RayStatus.PENDING)
TRACEBACK = "Traceback (most recent call last):\n  …\n{}: no"


def told(do: Do, seen: Seen) -> str | None:
    view = an_attempt(AttemptState.POSTING if do is Do.POST else AttemptState.PENDING)
    action = Action(do=do)
    return failed_submit(action, seen, advance(view, action, seen, NOW))


def ended(error_type: str | None, message: str = "", exit_code: int | None = None) -> Seen:
    job = RayJob(status=RayStatus.FAILED, error_type=error_type, message=message, exit_code=exit_code)
    return Seen(job=job)


def refused(status: int, text: str = "") -> Seen:
    return Seen(problem=Problem.REFUSED, status=status, text=text)


@pytest.mark.parametrize(
    ("do", "seen", "why"),
    [
        (Do.POST, Seen(problem=Problem.UNREACHABLE), "UNREACHABLE"),
        (Do.POST, refused(500, TRACEBACK.format("RpcError")), "HTTP 500"),
        (Do.LOOK, ended("JOB_SUPERVISOR_ACTOR_START_FAILURE", TRACEBACK.format("OSError")), "DRIVER_NOT_STARTED"),
        (Do.LOOK, ended("JOB_ENTRYPOINT_COMMAND_START_ERROR"), "DRIVER_NOT_STARTED"),
    ],
)
def test_a_fault_of_the_clusters(do: Do, seen: Seen, why: str) -> None:
    assert told(do, seen) == why


@pytest.mark.parametrize(
    ("do", "seen"),
    [
        (Do.POST, Seen(done=True)),
        (Do.POST, Seen(problem=Problem.IMPOSSIBLE)),
        (Do.POST, refused(400)),
        (Do.POST, refused(403)),
        (Do.POST, refused(500, TRACEBACK.format("ValueError"))),
        (Do.LOOK, Seen(problem=Problem.UNREACHABLE)),
        (Do.LOOK, Seen(job=PENDING)),
        (Do.LOOK, ended(None, exit_code=1)),
        (Do.LOOK, ended(None, exit_code=232)),
        (Do.LOOK, ended("RUNTIME_ENV_SETUP_FAILURE")),
        (Do.LOOK, ended("JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE")),
        (Do.LOOK, ended("JOB_SUPERVISOR_ACTOR_START_FAILURE", TRACEBACK.format("TypeError"))),
        (Do.LOOK, ended("JOB_SUPERVISOR_ACTOR_DIED")),
    ],
)
def test_none_of_the_clusters(do: Do, seen: Seen) -> None:
    assert told(do, seen) is None
