"""What a task's command sees: Muster's variables (api.md §10), the file that sets them, and no trace of the runner."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

from .processes import command_line, process
from .spec import OWN_ENV_VARS, RunnerSpec

_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_RAYLET_ADDRESS = b"--node_ip_address="
_OF_RAYS_WORKERS = ("RAY_JOB_ID", "RAY_RAYLET_PID", "PYTHONBREAKPOINT", "RAY_worker_niceness")
"""What Ray tells its own worker processes, among which we may be, and no other."""
_OF_THE_NODE = ("RAY_RUNTIME_ENV_PLUGINS", "RAY_RUNTIME_ENV_MUSTER_MOUNTS_CACHE_SIZE_GB")
"""With these a Ray that the user's code starts for itself would look for the plugins of ours."""
_NICENESS = {"RAY_worker_niceness": "0"}
_SETUP_TRIES = 3
_SETUP_TIMEOUT_S = 600
_LONGEST_SETUP_S = 7200
_SLACK_S = 300


def task_variables(
    spec: RunnerSpec, addresses: Sequence[Sequence[str]], *, group: int, task: int, host_ip: str, bootstrap: str
) -> dict[str, str]:
    """`addresses[group][task]` is every task's address; the same for all tasks of a run."""
    rank = sum(len(tasks) for tasks in addresses[:group]) + task
    variables = {
        "PAI_JOB_TASK_COUNT": str(sum(len(tasks) for tasks in addresses)),
        "PAI_JOB_TASK_ROLE_COUNT": str(len(addresses)),
        "PAI_CURRENT_TASK_ROLE_INDEX": str(group),
        "PAI_TASK_INDEX": str(task),
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(task),
        **{f"PAI_CONTAINER_LIST_{g}_{t}": ip for g, tasks in enumerate(addresses) for t, ip in enumerate(tasks)},
        "PAI_CONTAINER_IP": addresses[group][task],
        "PAI_CONTAINER_HOST_IP": host_ip,
        "PAI_BOOTSTRAP_PATH": bootstrap,
        "MUSTER_RUN_ID": spec.run_id,
        "MUSTER_ATTEMPT": str(spec.attempt),
        "MUSTER_GLOBAL_RANK": str(rank),
    }
    if spec.previous_cluster is not None:
        variables["MUSTER_PREVIOUS_CLUSTER"] = spec.previous_cluster
    return variables


def bootstrap_text(variables: Mapping[str, str], command: str) -> bytes:
    lines = [
        "#!/usr/bin/env bash",
        "# Written by Muster: the variables of this task, then its start command. Exactly this file is run.",
        *(f"export {name}={_quoted(value)}" for name, value in variables.items()),
        "",
        command,
        "",
    ]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def process_environment(inherited: Mapping[str, str], home: str) -> dict[str, str]:
    """The inherited environment less the runner, which lives in `home`, another job's variables and our plugin's."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("PAI_", "MUSTER_NODE_"))}
    for name in ("MUSTER_PREVIOUS_CLUSTER", *OWN_ENV_VARS, *_OF_RAYS_WORKERS, *_OF_THE_NODE):
        kept.pop(name, None)
    python_path = [folder for folder in kept.pop("PYTHONPATH", home).split(os.pathsep) if folder != home]
    if python_path:
        kept["PYTHONPATH"] = os.pathsep.join(python_path)
    if _JOB_CONFIG in kept:
        kept[_JOB_CONFIG] = _without_runner(kept[_JOB_CONFIG], f"{os.path.basename(home)}.zip")
    return kept


def ray_variables(inherited: Mapping[str, str], home: str) -> dict[str, str]:
    """With these a task's `ray.init()` joins the job's cluster with the job's runtime_env, as a driver of its own.

    Only the runner's is the driver of the submission: hence no `metadata`.
    """
    config = json.loads(process_environment(inherited, home)[_JOB_CONFIG])
    config.pop("metadata", None)
    return {"RAY_ADDRESS": inherited["RAY_ADDRESS"], _JOB_CONFIG: json.dumps(config), "PYTHONUNBUFFERED": "1"}


def actors_job_config(inherited: Mapping[str, str]) -> dict[str, str]:
    """The job's configuration for the actors of tasks: Ray lets its workers' children wait for everybody else."""
    config = json.loads(inherited[_JOB_CONFIG])
    runtime_env = config.get("runtime_env") or {}
    variables = {**runtime_env.get("env_vars", {}), **_NICENESS}
    return {_JOB_CONFIG: json.dumps({**config, "runtime_env": {**runtime_env, "env_vars": variables}})}


def set_up_bound_s(inherited: Mapping[str, str]) -> float:
    """How long a node may take for the job's runtime_env before Ray gives up, and somewhat more."""
    runtime_env = json.loads(inherited[_JOB_CONFIG]).get("runtime_env") or {}
    timeout_s = float((runtime_env.get("config") or {}).get("setup_timeout_seconds") or _SETUP_TIMEOUT_S)
    return _SETUP_TRIES * (timeout_s if timeout_s > 0 else _LONGEST_SETUP_S) + _SLACK_S


def node_ip() -> str:
    """Our node's address in its Ray cluster: from the raylet above us, else where traffic to the head leaves from."""
    above = process(os.getppid())
    while above:
        for argument in command_line(above.pid):
            if argument.startswith(_RAYLET_ADDRESS):
                return argument[len(_RAYLET_ADDRESS) :].decode()
        above = process(above.parent)
    return _outgoing_address(os.environ.get("RAY_ADDRESS", "").rpartition(":")[0])


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def _without_runner(job_config: str, package: str) -> str:
    """Ray refuses a `ray.init(runtime_env=…)` that repeats a key of the job's own: the user must not meet ours there.

    `metadata` stays: through it Ray ties a plain job's driver to its submission.
    """
    config = json.loads(job_config)
    runtime_env = config.get("runtime_env") or {}
    modules = [uri for uri in runtime_env.pop("py_modules", ()) if uri.rpartition("/")[2] != package]
    variables = {k: v for k, v in runtime_env.pop("env_vars", {}).items() if k not in OWN_ENV_VARS}
    if modules:
        runtime_env["py_modules"] = modules
    if variables:
        runtime_env["env_vars"] = variables
    return json.dumps({**config, "runtime_env": runtime_env})


def _outgoing_address(host: str) -> str:
    import socket  # noqa: PLC0415 - seldom needed, and slow to load

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host or "127.0.0.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
