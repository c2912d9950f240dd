"""What advanced parameters ask for is what real Ray nodes and real jobs have: each is read back from where it acts."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from rayjobs.advanced import submission_options
from rayjobs.gateway.base import Submission
from tests.contract.local_lab import Lab, bring_up, local_lab, processes_of, small_group, small_spec
from tests.contract.sent_jobs import log_of, send

pytestmark = pytest.mark.ray

OF_NODES = {
    "object-store-memory": "90000000",
    "labels": "tier=gold,example.org/zone=a",
    "resources": '{"licence": 2}',
    "min-worker-port": "15000",
    "max-worker-port": "15999",
    "include-log-monitor": "false",
    "disable-usage-stats": "true",
}
OF_SYSTEM = {
    "memory_usage_threshold": "0.9",
    "memory_monitor_refresh_ms": "500",
    "task_events_max_num_task_in_gcs": "5000",
    "health_check_period_ms": "1500",
    "health_check_timeout_ms": "4000",
    "health_check_failure_threshold": "4",
    "max_io_workers": "2",
    "object_spilling_threshold": "0.7",
}
OF_JOB = {
    "entrypoint_num_cpus": "0.5",
    "entrypoint_memory": "1000000",
    "entrypoint_resources": '{"licence": 1}',
    "entrypoint_label_selector": '{"tier": "gold"}',
    "runtime_env.config.setup_timeout_seconds": "120",
    "eager_install": "false",
    "dedup_logs": "false",
    "log_level": "error",
}
LOOK = """
import json, os, psutil, ray
from ray._private.state import state

@ray.remote(num_cpus=0, resources={"licence": 0.001})
def seen_by_a_worker():
    below = psutil.Process()
    raylet = psutil.Process(int(os.environ["RAY_RAYLET_PID"]))
    return {
        "ports": [one.laddr.port for one in below.net_connections("inet") if one.status == "LISTEN"],
        "raylet": raylet.cmdline(),
        "health": [
            ray._raylet.Config.health_check_period_ms(),
            ray._raylet.Config.health_check_timeout_ms(),
            ray._raylet.Config.health_check_failure_threshold(),
        ],
    }

ray.init()
print("SEEN" + json.dumps({
    "nodes": ray.nodes(),
    "system": state.get_system_config(),
    "worker": ray.get(seen_by_a_worker.remote()),
    "env": {name: os.environ.get(name) for name in ("RAY_DEDUP_LOGS", "RAY_LOGGER_LEVEL")},
    "env_config": json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]["config"],
}))
"""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with local_lab(tmp_path / "clusters") as lab:
        yield lab


async def test_all_of_them_act(lab: Lab) -> None:
    spec = replace(small_spec("clu_a", small_group()), advanced_parameters={**OF_NODES, **OF_SYSTEM})
    observed = await bring_up(lab.backend(), spec)
    assert observed.endpoint
    options = submission_options(OF_JOB)
    look = f"python - <<'END'\n{LOOK}\nEND"
    env = options.runtime_env({})
    job = await send(
        lab,
        observed.endpoint,
        Submission(submission_id="look", entrypoint=look, runtime_env=env, options=options.fields),
    )
    seen = _seen(await log_of(lab, observed.endpoint, "look", job))

    _nodes_are_as_asked(seen)
    _system_is_as_asked(seen)
    assert not [one for one in processes_of(lab.state("clu_a")["folder"]) if "log_monitor.py" in " ".join(_words(one))]
    headers = {"Authorization": f"Bearer {observed.endpoint.token}"}
    usage = await lab.http.get(f"{observed.endpoint.address}/usage_stats_enabled", headers=headers)
    assert usage.json()["data"]["usageStatsEnabled"] is False

    assert seen["env"] == {"RAY_DEDUP_LOGS": "0", "RAY_LOGGER_LEVEL": "error"}
    assert seen["env_config"]["setup_timeout_seconds"] == 120
    assert seen["env_config"]["eager_install"] is False
    assert (job.driver_address or "").startswith("http://127.0.0.3:")  # the worker: no other has the licences


def _seen(log: str) -> dict[str, Any]:
    (line,) = (line for line in log.splitlines() if line.startswith("SEEN"))
    return dict(json.loads(line.removeprefix("SEEN")))


def _nodes_are_as_asked(seen: dict[str, Any]) -> None:
    by_group = {node["Labels"]["muster.io/group"]: node for node in seen["nodes"]}
    for node in by_group.values():
        assert node["Resources"]["object_store_memory"] == 90_000_000
        assert (node["Labels"]["tier"], node["Labels"]["example.org/zone"]) == ("gold", "a")
    assert by_group["w"]["Resources"]["licence"] == 2
    assert "licence" not in by_group["head"]["Resources"]
    assert {"--min_worker_port=15000", "--max_worker_port=15999"} <= set(seen["worker"]["raylet"])
    assert any(15_000 <= port <= 15_999 for port in seen["worker"]["ports"])


def _system_is_as_asked(seen: dict[str, Any]) -> None:
    assert {key: seen["system"][key] for key in OF_SYSTEM} == {key: json.loads(text) for key, text in OF_SYSTEM.items()}
    assert seen["worker"]["health"] == [1500, 4000, 4]  # and not what the nodes' environment says


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
