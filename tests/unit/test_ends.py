"""What an exit code of our own means, of a plain job."""

import pytest

from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.gateway.status import judge_end
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.runner.spec import EXIT_GUARD_LOST, EXIT_RUNNER_FAILED, EXIT_TASK_LOST

RAYS_WORDS = "Job entrypoint command failed with exit code {}, last available logs:\nexec python3 -I eNqNjs\n"


def end_of(exit_code: int, message: str = "", stop_code: EndCode | None = None) -> End | None:
    job = RayJob(status=RayStatus.FAILED, exit_code=exit_code, message=RAYS_WORDS.format(exit_code) + message)
    return judge_end(job, stop_code=stop_code, time_is_up=False)


def test_what_was_ended_with_its_node_is_lost() -> None:
    assert end_of(EXIT_TASK_LOST) == End(end_class=EndClass.LOST, code=EndCode.NODE_LOST, exit_code=EXIT_TASK_LOST)


@pytest.mark.parametrize("code", [EXIT_GUARD_LOST, EXIT_RUNNER_FAILED])
def test_of_a_runner_that_failed_its_own_words_are_told(code: int) -> None:
    """And not Ray's, which begin with our start command; the user's lines are in the log."""
    said = end_of(code, "hello\nmuster: the guard of this job was killed; ending the job\n")
    silent = end_of(code, "hello\n")
    assert said is not None
    assert silent is not None
    assert said.code is silent.code is EndCode.RUNNER_FAILED
    assert said.params == {"message": "the guard of this job was killed; ending the job"}
    assert silent.params == {"message": f"exit code {code}"}


def test_whoever_asked_for_a_stop_got_one() -> None:
    end = end_of(EXIT_TASK_LOST, stop_code=EndCode.BY_USER)
    assert end == End(end_class=EndClass.STOPPED, code=EndCode.BY_USER, exit_code=EXIT_TASK_LOST)
