"""What advanced parameters may never set (R62), and which form item does (R73)."""

from collections.abc import Mapping
from enum import StrEnum

_ENV = "runtime_env.env_vars"
_TARGET = "run_mode"
_JOB = "job."


class Place(StrEnum):
    """The form it stands in."""

    CLUSTER = "cluster"
    ON_DEMAND = "on_demand"
    """A job with a cluster of its own."""
    SHARED = "shared"
    """A job on a cluster that is there already."""


_ITEMS: Mapping[str, tuple[str, str]] = {
    # resources
    "num_cpus cpu": ("worker_groups[].cpu", "requirements.cpu"),
    "num_gpus gpu gpus": ("worker_groups[].gpu", "requirements.gpu"),
    "memory": ("worker_groups[].memory_gib", "requirements.memory_gib"),
    # instance counts
    "replicas min_workers min_replicas num_of_hosts": ("worker_groups[].min_instances", _TARGET),
    "max_workers max_replicas": ("worker_groups[].max_instances", _TARGET),
    # image and version
    "image image_pull_policy image_pull_secrets image_uri": ("image", _TARGET),
    "ray_version": ("image", "requirements.ray_version"),
    "python_version": ("image", "requirements.python_version"),
    # commands, Ray's own start command among them
    "command args entrypoint head address block port temp_dir plasma_directory": ("entrypoint", "entrypoint"),
    "tracing_startup_hook worker_process_setup_hook": ("entrypoint", "entrypoint"),
    # environment
    "path python_path": (_ENV, _ENV),
    "runtime_env container py_executable nsight pip uv conda working_dir py_modules": ("runtime_env", "runtime_env"),
    # network, security, placement
    "node_ip_address ray_client_server_port auth_mode auth_token": (_TARGET, _TARGET),
    "service_account_name host_network host_pid host_ipc privileged security_context suspend": (_TARGET, _TARGET),
    "volumes volume_mounts": ("mounts", "mounts"),
    "tolerations node_selector": ("resource_group", _TARGET),
    # whole parts of a RayCluster
    "head_group_spec": ("head", _TARGET),
    "worker_group_specs": ("worker_groups", _TARGET),
}
"""Protected names to the form item of a job with a cluster of its own, and of one on a cluster that is there."""

_OF_CLUSTERS: Mapping[str, str] = {
    "entrypoint": f"{_JOB}entrypoint",
    "runtime_env": f"{_JOB}runtime_env",
    _ENV: f"{_JOB}{_ENV}",
    _TARGET: "backend",
    "mounts": "volumes",
}
"""What the form of a cluster has in the place of an item of an on-demand job; the others are the same there."""

_PREFIXES: Mapping[str, str] = {
    **dict.fromkeys(("env", "ray_", "pai_", "muster_", "fc_", "ld_"), _ENV),
    **dict.fromkeys(("redis_", "dashboard_", "tls_", "use_tls"), _TARGET),
}


def protecting_item(key: str, place: Place) -> str | None:
    """The form item to use instead, for a key any dotted part of which is protected; the last such part tells."""
    for part in reversed(key.split(".")):
        if items := _BY_NAME.get(squeezed(part)):
            return _in_place(items, place)
        plain = part.lower().lstrip("-_").replace("-", "_")
        if item := next((item for prefix, item in _PREFIXES.items() if plain.startswith(prefix)), None):
            return _in_place((item, item), place)
    return None


def squeezed(name: str) -> str:
    """The same for `num-cpus`, `NUM_CPUS`, `numCpus` and `--num-cpus`."""
    return name.lower().replace("-", "").replace("_", "")


def _in_place(items: tuple[str, str], place: Place) -> str:
    on_demand, shared = items
    if place is Place.SHARED:
        return shared
    return _OF_CLUSTERS.get(on_demand, on_demand) if place is Place.CLUSTER else on_demand


_BY_NAME = {squeezed(name): items for names, items in _ITEMS.items() for name in names.split()}
