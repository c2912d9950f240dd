"""Two jobs with two sets of dependencies on one real cluster at once, from the package index of the site (R60)."""

import asyncio
import os
import sysconfig
import venv
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cluster_groups.backends.local import LocalBackend
from cluster_groups.backends.local_command import LocalSettings
from rayjobs.gateway.base import RayJob, RayStatus, Submission
from rayjobs.gateway.status import judge_end
from rayjobs.model.run import EndClass, EndCode
from tests.builders.wheels import wheel
from tests.contract.local_lab import Lab, bring_up, local_lab, small_group, small_spec
from tests.contract.sent_jobs import log_of, send

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SET_UP_S = 200
TWO_AT_ONCE = """python - <<'END'
import pathlib, time
import ray, tinyprobe

here = pathlib.Path({folder!r}, tinyprobe.version)
other = here.with_name({other!r})
here.touch()
deadline = time.monotonic() + {patience_s}
while not other.exists() and time.monotonic() < deadline:
    time.sleep(0.1)
assert other.exists(), "the other job did not run beside this one"

@ray.remote(num_cpus=0)
def seen_by_a_task():
    import tinyprobe
    return tinyprobe.version

ray.init()
print("driver", tinyprobe.version, "task", ray.get(seen_by_a_task.remote()))
END"""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with local_lab(tmp_path / "clusters") as lab:
        yield lab


async def test_each_job_sees_its_own_and_a_failure_names_its_package(lab: Lab, tmp_path: Path) -> None:
    index, met = tmp_path / "index", tmp_path / "met"
    index.mkdir()
    met.mkdir()
    wheel(index, "tinyprobe", "1.0")
    wheel(index, "tinyprobe", "2.0")
    wheel(index, "needsmissing", "1.0", requires=["nosuchdependency>=3"])
    site = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    settings = LocalSettings(environment=site, python=_lean_python(tmp_path / "python"))
    observed = await bring_up(LocalBackend(lab.root, lab.probe, settings), small_spec("clu_e", small_group()))
    endpoint = observed.endpoint
    assert endpoint

    async def run(name: str, entrypoint: str, **env: Any) -> RayJob:
        submission = Submission(submission_id=name, entrypoint=entrypoint, runtime_env=env)
        return await send(lab, endpoint, submission, SET_UP_S)

    def script(other: str) -> str:
        return TWO_AT_ONCE.format(folder=str(met), other=other, patience_s=SET_UP_S)

    first, second, third = await asyncio.gather(
        run("first", script("2.0"), pip=["tinyprobe==1.0"], config={"eager_install": False}),
        run("second", script("1.0"), pip=["tinyprobe==2.0"], config={"eager_install": False}),
        run("third", "true", pip=["needsmissing"]),
    )
    assert (first.status, second.status) == (RayStatus.SUCCEEDED, RayStatus.SUCCEEDED), (first, second)
    assert "driver 1.0 task 1.0" in await log_of(lab, endpoint, "first", first)
    assert "driver 2.0 task 2.0" in await log_of(lab, endpoint, "second", second)
    end = judge_end(third, stop_code=None, time_is_up=False)
    assert end is not None
    assert (end.end_class, end.code) == (EndClass.ENVIRONMENT, EndCode.DEPENDENCY_NOT_FOUND)
    assert end.params["package"] == "nosuchdependency>=3"
    assert "from needsmissing" in end.params["message"]


def _lean_python(folder: Path) -> str:
    """With all that this one has, by reference: Ray copies the environment it runs in for each set of dependencies."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    ours = "\n".join([sysconfig.get_path("purelib"), str(Path.cwd())])
    packages.joinpath("all_of_ours.pth").write_text(ours + "\n")
    return str(python)
