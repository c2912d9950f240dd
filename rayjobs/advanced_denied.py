"""What advanced parameters may never set (R62), and which form item does (R73)."""

from rayjobs.model.job import RunMode

_ENV = "runtime_env.env_vars"
_TARGET = "run_mode"

_ITEMS: dict[str, tuple[str, str]] = {
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
"""Protected names to the form item for a cluster of one's own and for one that is there already."""

_PREFIXES: dict[str, str] = {
    **dict.fromkeys(("env", "ray_", "pai_", "muster_", "fc_", "ld_"), _ENV),
    **dict.fromkeys(("redis_", "dashboard_", "tls_", "use_tls"), _TARGET),
}

_CLUSTER_SCOPE = """
    object_store_memory object_spilling_directory labels resources min_worker_port max_worker_port
    include_log_monitor disable_usage_stats idle_timeout_s upscaling_mode upscaling_speed
    memory_usage_threshold memory_monitor_refresh_ms task_events_max_num_task_in_gcs health_check_period_ms
    health_check_timeout_ms health_check_failure_threshold max_io_workers object_spilling_threshold
"""


def protecting_item(key: str, run_mode: RunMode) -> str | None:
    """The form item to use instead, for a key any dotted part of which is protected; the last such part tells."""
    for part in reversed(key.split(".")):
        if items := _BY_NAME.get(_squeezed(part)):
            return items[run_mode is not RunMode.ON_DEMAND]
        plain = part.lower().lstrip("-_").replace("-", "_")
        if item := next((item for prefix, item in _PREFIXES.items() if plain.startswith(prefix)), None):
            return item
    return None


def is_cluster_scope(key: str) -> bool:
    return _squeezed(key.rpartition(".")[2]) in _CLUSTER_KEYS


def _squeezed(name: str) -> str:
    """The same for `num-cpus`, `NUM_CPUS`, `numCpus` and `--num-cpus`."""
    return name.lower().replace("-", "").replace("_", "")


_BY_NAME = {_squeezed(name): items for names, items in _ITEMS.items() for name in names.split()}
_CLUSTER_KEYS = frozenset(map(_squeezed, _CLUSTER_SCOPE.split()))
