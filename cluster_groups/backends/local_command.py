"""From a cluster's specification to the nodes it gets on this machine, their command lines and their environment."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import IPv4Address
from pathlib import Path

from cluster_groups.backends.local_processes import TOKEN_PATH
from cluster_groups.backends.local_state import LocalCluster, LocalNode
from cluster_groups.model.cluster import HEAD_GROUP, ClusterSpec, NodeSpec
from cluster_groups.node_table import ACCELERATOR_LABEL, ACCELERATOR_RESOURCE, GROUP_LABEL
from runtime_envs.advanced.catalogue import Scope
from runtime_envs.advanced.check import read
from runtime_envs.node_plugin.terms import MOUNT_TIMEOUT, MOUNT_TIMEOUT_S, MOUNTS_KEY, NODE_ROOT

STOP_GRACE_S = 5.0
"""How long what runs on a node has after SIGTERM."""

_GUARD = Path(__file__).with_name("local_guard.py")
_FIRST_IP = IPv4Address("127.0.0.2")
"""Ray replaces 127.0.0.1 by the host's address; any other loopback address stays, whatever network the host is on."""

_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_*", "UV_*")
_PLUGINS = ("runtime_envs.node_plugin.plugin.MountsPlugin", "runtime_envs.node_plugin.plugin.PackagePlugin")
_PLAIN = ("object-store-memory", "min-worker-port", "max-worker-port", "include-log-monitor")
"""Advanced parameters that are options of `ray start` as they are."""
_RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",  # unset, Ray decides by whether ~/.ray/auth_token exists
    "RAY_START_HOOK": "cluster_groups.backends.local_hook.without_ray_client",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # else SIGTERM waits 30 s for a running job
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",  # a dead head never returns here: its workers need not wait 60 s
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",  # with the threshold: a killed node is DEAD after 3 s, not 15
    "RAY_health_check_failure_threshold": "3",
    "DASHBOARD_METRIC_PORT": "0",
    "AUTOSCALER_METRIC_PORT": "0",
    "RAY_RUNTIME_ENV_PLUGINS": json.dumps([{"class": name} for name in _PLUGINS]),
    f"RAY_RUNTIME_ENV_{MOUNTS_KEY.upper()}_CACHE_SIZE_GB": "0",  # nothing stays mounted that nobody uses
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSettings:
    environment: Mapping[str, str] = field(repr=False)
    """The service's own; nodes, and with them every user's code, see only what `passed` names."""
    passed: tuple[str, ...] = _PASSED
    dashboard_ports: range = range(20000, 25000)  # below the range the kernel hands out by itself
    object_store_bytes: int = 100_000_000
    mount_timeout_s: float = MOUNT_TIMEOUT_S
    temp_root: Path = Path("/tmp")  # noqa: S108 - holds private folders only; socket paths must stay below 108 bytes
    python: str = sys.executable


def plan_nodes(spec: ClusterSpec) -> tuple[LocalNode, ...]:
    workers = ((f"{group}-{index}", group) for group, count in spec.workers.items() for index in range(count))
    names = [(HEAD_GROUP, HEAD_GROUP), *workers]
    return tuple(
        LocalNode(name=name, group=group, ip=str(_FIRST_IP + index)) for index, (name, group) in enumerate(names)
    )


def head_command(spec: ClusterSpec, cluster: LocalCluster, settings: LocalSettings) -> list[str]:
    options = {
        "port": "0",
        "dashboard-host": "127.0.0.1",
        "dashboard-port": str(cluster.dashboard_port),
        "include-dashboard": "true",  # without it a busy port means no dashboard and no word about it
        **_node_options(cluster.head, spec.head, spec, settings),
        "num-cpus": "0",
        "num-gpus": "0",
    }
    if system := read(spec.advanced_parameters, Scope.SYSTEM):
        options["system-config"] = json.dumps(system)  # it wins over our own `RAY_…`, and the workers ask the head
    return _ray_start(settings, ["--head", *_flags(spec)], options)


def worker_command(spec: ClusterSpec, node: LocalNode, gcs_address: str, settings: LocalSettings) -> list[str]:
    group = next(group for group in spec.worker_groups if group.name == node.group)
    options = {
        "address": gcs_address,
        **_node_options(node, group, spec, settings),
        "num-cpus": str(math.ceil(group.cpu)),  # Ray counts whole CPUs here
        "num-gpus": str(group.gpu),
    }
    return _ray_start(settings, _flags(spec), options)


def node_environment(settings: LocalSettings, token_path: str, node: LocalNode) -> dict[str, str]:
    passed = {
        name: value
        for name, value in settings.environment.items()
        if any(fnmatchcase(name, pattern) for pattern in settings.passed)
    }
    path = f"{Path(settings.python).parent}:{passed.get('PATH', '/usr/bin:/bin')}"  # `python` in an entrypoint has Ray
    plugin = {NODE_ROOT: node.own_folder, MOUNT_TIMEOUT: str(settings.mount_timeout_s)}
    return {**passed, "PATH": path, **_RAY_ENVIRONMENT, TOKEN_PATH: token_path, **plugin}


def _flags(spec: ClusterSpec) -> list[str]:
    is_private = read(spec.advanced_parameters, Scope.NODE).get("disable-usage-stats", True)
    return ["--disable-usage-stats"] if is_private else []


def _node_options(node: LocalNode, size: NodeSpec, spec: ClusterSpec, settings: LocalSettings) -> dict[str, str]:
    given = read(spec.advanced_parameters, Scope.NODE)
    resources = {} if node.is_head else dict(given.get("resources", {}))  # the head runs no tasks
    labels = {**given.get("labels", {}), **size.labels, GROUP_LABEL: node.group}
    if not node.is_head and size.gpu and size.gpu_type:
        resources[ACCELERATOR_RESOURCE + size.gpu_type] = 1
        labels[ACCELERATOR_LABEL] = size.gpu_type
    plain = {key: str(given[key]) for key in _PLAIN if key in given}
    return {
        "node-ip-address": node.ip,
        "dashboard-agent-listen-port": "0",
        "min-worker-port": "0",
        "max-worker-port": "0",
        "object-store-memory": str(settings.object_store_bytes),
        **plain,
        "memory": str(int(size.memory_gib * 2**30)),
        "labels": ",".join(f"{key}={value}" for key, value in labels.items()),
        "resources": json.dumps(resources),
        "temp-dir": str(node.folder),
    }


def _ray_start(settings: LocalSettings, flags: list[str], options: Mapping[str, str]) -> list[str]:
    always = ["start", "--block", "--log-color=false"]
    values = [f"--{name}={value}" for name, value in options.items()]
    guard = [settings.python, "-I", "-S", str(_GUARD), str(STOP_GRACE_S)]
    return [*guard, settings.python, "-m", "ray.scripts.scripts", *always, *flags, *values]
