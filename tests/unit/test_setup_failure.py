"""What Ray said of real runtime_envs that failed on a real cluster, and what is told of it.

`setup_messages.json` holds the ends of Ray 2.60's messages with the words of pip 23.2, uv 0.9 and, from its sources,
conda; paths are shortened.
"""

import json
import time
from pathlib import Path

import pytest

from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.gateway.setup_failure import MAX_MESSAGE, judge_setup
from rayjobs.gateway.status import GangSight, judge_end
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.runner.spec import EXIT_RUNNER_FAILED

MESSAGES = json.loads(Path(__file__).parents[1].joinpath("builders", "setup_messages.json").read_text("utf-8"))
TOLD = {
    "missing": (EndCode.DEPENDENCY_NOT_FOUND, "nosuchpackage==1.0"),
    "badversion": (EndCode.DEPENDENCY_NOT_FOUND, "tinyprobe==9"),
    "depmissing": (EndCode.DEPENDENCY_NOT_FOUND, "nosuchdependency>=3"),
    "pipversion": (EndCode.DEPENDENCY_NOT_FOUND, "pip==99.9"),
    "uv": (EndCode.DEPENDENCY_NOT_FOUND, "uv"),
    "uv_missing": (EndCode.DEPENDENCY_NOT_FOUND, "nosuchpackage"),
    "conda_missing_package": (EndCode.DEPENDENCY_NOT_FOUND, "nosuchpackage=1.0"),
    "conda_channels": (EndCode.DEPENDENCY_NOT_FOUND, "nosuchpackage"),
    "conflict": (EndCode.DEPENDENCY_CONFLICT, "tinyprobe==1.0, tinyprobe==2.0"),
    "transitive": (EndCode.DEPENDENCY_CONFLICT, "needsold, needsnew"),
    "pipcheck": (EndCode.DEPENDENCY_CONFLICT, "needsold"),
    "uv_conflict": (EndCode.DEPENDENCY_CONFLICT, "tinyprobe==1.0 and tinyprobe==2.0"),
    "uv_transitive": (EndCode.DEPENDENCY_CONFLICT, "needsold and needsnew"),
    "build": (EndCode.DEPENDENCY_NOT_INSTALLABLE, "brokenbuild-1.0"),
    "uv_build": (EndCode.DEPENDENCY_NOT_INSTALLABLE, "brokenbuild==1.0"),
    "toonew": (EndCode.DEPENDENCY_NOT_INSTALLABLE, "toonew"),
    "uv_toonew": (EndCode.DEPENDENCY_NOT_INSTALLABLE, "toonew==1.0"),
    "invalid": (EndCode.DEPENDENCY_NOT_INSTALLABLE, "tinyprobe=1"),
    "badhash": (EndCode.DEPENDENCY_NOT_INSTALLABLE, "tinyprobe==1.0"),
    "unreachable": (EndCode.PACKAGE_INDEX_UNREACHABLE, "nosuchthing"),
    "uv_unreachable": (EndCode.PACKAGE_INDEX_UNREACHABLE, "nosuchthing"),
    "timeout": (EndCode.RUNTIME_ENV_TIMEOUT, None),
    "conda": (EndCode.CONDA_NOT_FOUND, None),
    "condaname": (EndCode.CONDA_NOT_FOUND, None),
    "pymod": (EndCode.RUNTIME_ENV_FAILED, None),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_told(name: str) -> None:
    end = judge_setup(MESSAGES[name])
    assert end.end_class is EndClass.ENVIRONMENT
    assert (end.code, end.params.get("package")) == TOLD[name]
    assert 0 < len(end.params["message"]) <= MAX_MESSAGE
    assert "Traceback" not in end.params["message"]
    assert "_requirements.txt" not in end.params["message"]


@pytest.mark.parametrize("message", ["", "no words of any installer", "x" * 100_000, "ERROR: \n" * 5000])
def test_what_nobody_foresaw_is_passed_on_by_its_end(message: str) -> None:
    end = judge_setup(message)
    assert end.code is EndCode.RUNTIME_ENV_FAILED
    assert len(end.params["message"]) <= MAX_MESSAGE
    assert message.rstrip().endswith(end.params["message"][-20:])


def test_a_gang_tells_the_same_as_a_plain_job() -> None:
    job = RayJob(status=RayStatus.FAILED, exit_code=EXIT_RUNNER_FAILED)
    said = End(
        end_class=EndClass.ENVIRONMENT,
        code=EndCode.RUNTIME_ENV_FAILED,
        exit_code=EXIT_RUNNER_FAILED,
        params={"message": MESSAGES["missing"]},
        task_group="g",
        task=1,
    )
    end = judge_end(job, stop_code=None, time_is_up=False, gang=GangSight(verdict=said, was_placed=False))
    assert end is not None
    assert (end.code, end.params["package"]) == (EndCode.DEPENDENCY_NOT_FOUND, "nosuchpackage==1.0")
    assert (end.task_group, end.task) == ("g", 1)


@pytest.mark.parametrize(
    "text",
    [
        "Processing " + "-py" * 6000 + "\nerror: subprocess-exited-with-error",
        "conflicting dependencies" + "\n" * 20_000,
        "\n" * 20_000,
        "Failed to fetch: " + "a/" * 10_000,
        "Because " * 2500,
        "PackagesNotFoundError:" * 900,
        "a." * 10_000 + "\n" + "_" * 20_000,
    ],
    ids=lambda text: text[:12],
)
def test_whatever_a_setup_py_prints_is_read_at_once(text: str) -> None:
    """A pattern that tries parts of a line again and again would take minutes, and all of the service with it."""
    began = time.process_time()
    judge_setup(f"Last 50 lines of stdout:\n{text}")
    assert time.process_time() - began < 2
