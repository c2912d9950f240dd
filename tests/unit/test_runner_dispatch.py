"""What is put to Ray for an attempt: the runner's ZIP, the entrypoint, the runtime_env."""

import ast
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from random import Random

import pytest

from rayjobs.dispatch import (
    EXIT_RUNNER_FAILED,
    MAX_SPEC_BYTES,
    RunnerSpec,
    SpecTooLarge,
    attempt_runtime_env,
    entrypoint,
    runner_package,
)
from rayjobs.runner.spec import unpack

SOURCES = sorted((Path(__file__).parents[2] / "rayjobs" / "runner").glob("*.py"))
OF_GANGS = {"gang.py", "placement.py", "task_actor.py"}
"""They drive Ray; a plain job does without it."""


def a_spec(command: str = "true", stop_grace_s: float = 10) -> RunnerSpec:
    return RunnerSpec(submission_id="run_1-a1", run_id="run_1", attempt=1, command=command, stop_grace_s=stop_grace_s)


def incompressible(size_bytes: int) -> str:
    return Random(1).randbytes(size_bytes).hex()  # noqa: S311 - the same each time


class TestPackage:
    def test_is_named_by_its_content(self) -> None:
        package = runner_package()
        assert package.sha256 == hashlib.sha256(package.data).hexdigest()
        assert package.name == f"muster_runner_{package.sha256[:16]}.zip"
        assert package.uri == f"gcs://{package.name}"

    def test_is_the_same_each_time_it_is_made(self) -> None:
        first = runner_package().data
        runner_package.cache_clear()
        assert runner_package().data == first

    def test_holds_every_source_of_the_runner(self) -> None:
        with zipfile.ZipFile(io.BytesIO(runner_package().data)) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        assert content == {f"muster_runner/{source.name}": source.read_bytes() for source in SOURCES}

    @pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
    def test_runs_on_python_3_9_with_the_standard_library_or_ray_only(self, source: Path) -> None:
        tree = ast.parse(source.read_text(), feature_version=(3, 9))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        absolute = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
        absolute |= {str(node.module) for node in imports if isinstance(node, ast.ImportFrom) and node.level == 0}
        allowed = sys.stdlib_module_names | ({"ray"} if source.name in OF_GANGS else set())
        assert {name.partition(".")[0] for name in absolute} <= allowed

    def test_a_plain_job_starts_without_what_gangs_need(self) -> None:
        seen = "import sys, rayjobs.runner.main; print(*sys.modules)"
        modules = subprocess.run(
            [sys.executable, "-c", seen], capture_output=True, check=True, text=True
        ).stdout.split()
        assert "rayjobs.runner.guard" in modules
        assert {"ray", "asyncio", "subprocess", "pathlib"}.isdisjoint(modules)


class TestEntrypoint:
    def test_carries_the_whole_spec(self) -> None:
        spec = RunnerSpec(
            submission_id="run_1-a2",
            run_id="run_1",
            attempt=2,
            command="echo 'a\"b' $X\n作业 \\",
            stop_grace_s=2.5,
            max_runtime_s=60,
            previous_cluster="east",
        )
        assert unpack(entrypoint(spec, runner_package()).rpartition(" ")[2]) == spec

    def test_of_the_largest_spec_fits_into_one_argument(self) -> None:
        command = entrypoint(a_spec(incompressible(62_000)), runner_package())
        assert len(command) > 0.9 * MAX_SPEC_BYTES
        done = subprocess.run(
            ["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False
        )
        assert done.returncode == EXIT_RUNNER_FAILED  # it did start, and found no package on PYTHONPATH
        assert b"has not got the runner package" in done.stderr

    def test_refuses_what_does_not_fit(self) -> None:
        with pytest.raises(SpecTooLarge) as refused:
            entrypoint(a_spec(incompressible(80_000)), runner_package())
        assert refused.value.size_bytes > MAX_SPEC_BYTES


class TestRuntimeEnv:
    def test_adds_the_runner_and_the_time_to_stop(self) -> None:
        package = runner_package()
        assert attempt_runtime_env({}, a_spec(stop_grace_s=2.5), package) == {
            "py_modules": [package.uri],
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "13"},
        }

    def test_keeps_the_users_own(self) -> None:
        package = runner_package()
        user = {"py_modules": ["gcs://theirs.zip"], "env_vars": {"A": "1"}, "pip": ["six"]}
        merged = attempt_runtime_env(user, a_spec(), package)
        assert merged == {
            "py_modules": ["gcs://theirs.zip", package.uri],
            "env_vars": {"A": "1", "RAY_JOB_STOP_WAIT_TIME_S": "20"},
            "pip": ["six"],
        }
        assert user == {"py_modules": ["gcs://theirs.zip"], "env_vars": {"A": "1"}, "pip": ["six"]}


class TestInAnImage:
    """Ray puts nothing into a container beside the image: the runner comes with the command."""

    def test_the_runner_comes_with_its_command(self, tmp_path: Path) -> None:
        package = runner_package()
        command = entrypoint(a_spec("echo here; exit 7"), package, in_image=True)
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "RAY_ADDRESS": "127.0.0.1:1"}
        done = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, timeout=30, check=False)
        assert done.returncode == 7, done.stderr
        assert "here" in done.stdout.decode()

    def test_the_largest_plain_job_fits_into_one_argument(self) -> None:
        command = entrypoint(a_spec(incompressible(8192)), runner_package(), in_image=True)
        assert len(command) < 128 * 1024

    def test_nothing_stands_beside_the_image_but_what_ray_takes(self) -> None:
        env = attempt_runtime_env({"image_uri": "r/i:1", "env_vars": {"A": "1"}}, a_spec(), runner_package())
        assert set(env) == {"image_uri", "env_vars"}
