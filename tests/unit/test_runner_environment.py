"""What a task's command sees (api.md §10): R15–R25."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster_groups.backends.local_command import LocalSettings, node_environment
from cluster_groups.backends.local_state import LocalNode
from rayjobs.dispatch import RunnerSpec
from rayjobs.runner.environment import (
    actors_job_config,
    bootstrap_text,
    node_ip,
    process_environment,
    ray_variables,
    set_up_bound_s,
    task_variables,
)

HOME = "/ray/py_modules_files/muster_runner_0123"
AWKWARD = {
    "single_quote": "it's",
    "double_quote": 'say "hi"',
    "dollar": "$HOME `id` $(id) \\$X",
    "blanks": "  two  words\t",
    "lines": "one\ntwo\r\n\n",
    "backslash": "a\\b\\",
    "unicode": "作业 é 🙂",
    "glob": "* ? [a-z] ~ ! # ;&|<>",
    "empty": "",
    "dash": "-n",
    "not_utf8": b"\xff\xfe".decode("utf-8", "surrogateescape"),
}
GANG = [["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5"]]

JOB_CONFIG = {
    "runtime_env": {
        "working_dir": "gcs://a.zip",
        "py_modules": ["gcs://muster_runner_0123.zip"],
        "env_vars": {"A": "1", "RAY_JOB_STOP_WAIT_TIME_S": "20"},
    },
    "metadata": {"job_submission_id": "run_1-a1"},
}
DRIVERS = {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(JOB_CONFIG), "X": "1"}


def variables(addresses: list[list[str]], group: int, task: int, previous: str | None = None) -> dict[str, str]:
    spec = RunnerSpec(submission_id="run_1-a3", run_id="run_1", attempt=3, command="true", previous_cluster=previous)
    return task_variables(spec, addresses, group=group, task=task, host_ip="192.168.0.9", bootstrap="/b.sh")


def run_bash(folder: Path, script: bytes) -> bytes:
    file = folder / "bootstrap.sh"
    file.write_bytes(script)
    return subprocess.run(["bash", file], env={"PATH": os.environ["PATH"]}, capture_output=True, check=True).stdout


class TestTaskVariables:
    def test_of_a_plain_job(self) -> None:
        assert variables([["10.0.0.7"]], 0, 0) == {
            "PAI_JOB_TASK_COUNT": "1",
            "PAI_JOB_TASK_ROLE_COUNT": "1",
            "PAI_CURRENT_TASK_ROLE_INDEX": "0",
            "PAI_TASK_INDEX": "0",
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": "0",
            "PAI_CONTAINER_LIST_0_0": "10.0.0.7",
            "PAI_CONTAINER_IP": "10.0.0.7",
            "PAI_CONTAINER_HOST_IP": "192.168.0.9",
            "PAI_BOOTSTRAP_PATH": "/b.sh",
            "MUSTER_RUN_ID": "run_1",
            "MUSTER_ATTEMPT": "3",
            "MUSTER_GLOBAL_RANK": "0",
        }

    def test_of_a_gang_of_three_and_five(self) -> None:
        seen = variables(GANG, 1, 4)
        assert (seen["PAI_JOB_TASK_COUNT"], seen["PAI_JOB_TASK_ROLE_COUNT"]) == ("8", "2")
        assert (seen["PAI_CURRENT_TASK_ROLE_INDEX"], seen["PAI_TASK_INDEX"], seen["MUSTER_GLOBAL_RANK"]) == (
            "1",
            "4",
            "7",
        )
        assert seen["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"] == "4"
        assert seen["PAI_CONTAINER_IP"] == seen["PAI_CONTAINER_LIST_1_4"] == "10.0.1.5"

    def test_lists_are_the_same_in_every_task(self) -> None:
        lists = [
            {name: value for name, value in variables(GANG, group, task).items() if "_LIST_" in name}
            for group, tasks in enumerate(GANG)
            for task in range(len(tasks))
        ]
        assert len(lists) == len(lists[0]) == 8
        assert all(one == lists[0] for one in lists)

    def test_names_the_previous_cluster(self) -> None:
        assert variables([["10.0.0.7"]], 0, 0, previous="east")["MUSTER_PREVIOUS_CLUSTER"] == "east"


class TestBootstrap:
    @pytest.mark.parametrize("value", AWKWARD.values(), ids=AWKWARD.keys())
    def test_any_value_arrives_unchanged(self, tmp_path: Path, value: str) -> None:
        script = bootstrap_text(
            {"VALUE": value}, 'printf %s "$VALUE"; python3 -c \'import os; print(end=os.environ["VALUE"])\''
        )
        assert run_bash(tmp_path, script) == 2 * value.encode("utf-8", "surrogateescape")

    def test_double_quotes_expand_and_single_quotes_do_not(self, tmp_path: Path) -> None:
        script = bootstrap_text({"X": "1"}, """echo "$X" '$X' tcp://${X}:12356""")
        assert run_bash(tmp_path, script) == b"1 $X tcp://1:12356\n"

    @pytest.mark.parametrize("command", ["cat <<E\na $X\nE", "echo a \\\n 1", "echo a 1 # no line end"])
    def test_the_command_is_not_touched(self, tmp_path: Path, command: str) -> None:
        script = bootstrap_text({"X": "1"}, command)
        assert command.encode() in script
        assert run_bash(tmp_path, script) == b"a 1\n"


class TestProcessEnvironment:
    def test_has_no_trace_of_the_runner(self) -> None:
        config = {
            "runtime_env": {
                "py_modules": ["gcs://theirs.zip", "gcs://muster_runner_0123.zip"],
                "env_vars": {"A": "1", "RAY_JOB_STOP_WAIT_TIME_S": "20"},
                "pip": ["six"],
            },
            "metadata": {"job_submission_id": "run_1-a1"},
        }
        inherited = {"PYTHONPATH": f"/work:{HOME}:/theirs:{HOME}", "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config)}
        seen = process_environment(inherited, HOME)
        assert seen["PYTHONPATH"] == "/work:/theirs"
        assert json.loads(seen["RAY_JOB_CONFIG_JSON_ENV_VAR"]) == {
            "runtime_env": {"py_modules": ["gcs://theirs.zip"], "env_vars": {"A": "1"}, "pip": ["six"]},
            "metadata": {"job_submission_id": "run_1-a1"},
        }

    def test_drops_what_only_the_runner_needed(self) -> None:
        config = {
            "runtime_env": {
                "py_modules": ["gcs://muster_runner_0123.zip"],
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "1"},
            }
        }
        inherited = {"PYTHONPATH": HOME, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(config)}
        assert process_environment(inherited, HOME) == {"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {}}'}

    def test_drops_variables_of_a_job_around_ray(self) -> None:
        inherited = {
            "PAI_CONTAINER_LIST_7_7": "1.1.1.1",
            "MUSTER_PREVIOUS_CLUSTER": "x",
            "MUSTER_NODE_MOUNT_TIMEOUT_S": "30",
            "MUSTER_MOUNT_DATA": "/d",
            "A": "1",
        }
        assert process_environment(inherited, HOME) == {"MUSTER_MOUNT_DATA": "/d", "A": "1"}

    def test_drops_what_ray_tells_its_workers(self) -> None:
        inherited = {
            "RAY_JOB_ID": "02000000",
            "RAY_RAYLET_PID": "7",
            "RAY_worker_niceness": "0",
            "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace",
            "RAY_JOB_STOP_WAIT_TIME_S": "20",
            "RAY_AUTH_MODE": "token",
        }
        assert process_environment(inherited, HOME) == {"RAY_AUTH_MODE": "token"}

    def test_drops_what_would_have_a_ray_of_the_users_own_look_for_our_plugins(self) -> None:
        node = LocalNode(name="head", group="head", ip="127.0.0.2", folder="/tmp/m/0")
        given = node_environment(LocalSettings(environment={}), "/tmp/m/token", node)
        assert not [name for name in process_environment(given, HOME) if "PLUGIN" in name or "MUSTER" in name]


class TestRayVariablesOfATask:
    def test_join_the_cluster_with_the_jobs_runtime_env_as_another_driver(self) -> None:
        seen = ray_variables(DRIVERS, HOME)
        assert json.loads(seen.pop("RAY_JOB_CONFIG_JSON_ENV_VAR")) == {
            "runtime_env": {"working_dir": "gcs://a.zip", "env_vars": {"A": "1"}}
        }
        assert seen == {"RAY_ADDRESS": "10.0.0.1:6379", "PYTHONUNBUFFERED": "1"}

    def test_of_the_actors_let_their_children_run_like_a_plain_jobs(self) -> None:
        (seen,) = map(json.loads, actors_job_config(DRIVERS).values())
        assert seen["runtime_env"].pop("env_vars") == {
            "A": "1",
            "RAY_JOB_STOP_WAIT_TIME_S": "20",
            "RAY_worker_niceness": "0",
        }
        assert seen["metadata"] == JOB_CONFIG["metadata"]

    @pytest.mark.parametrize(
        ("config", "bound_s"),
        [({}, 2100), ({"setup_timeout_seconds": 60}, 480), ({"setup_timeout_seconds": -1}, 21900)],
    )
    def test_bound_the_wait_by_rays_own_time(self, config: dict[str, int], bound_s: float) -> None:
        job_config = json.dumps({"runtime_env": {"config": config}})
        assert set_up_bound_s({"RAY_JOB_CONFIG_JSON_ENV_VAR": job_config}) == bound_s


class TestNodeIp:
    def test_without_a_raylet_is_where_traffic_to_the_head_leaves_from(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
        assert node_ip() == "127.0.0.1"
