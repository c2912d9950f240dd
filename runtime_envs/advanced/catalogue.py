"""The advanced parameters there are (requirements §3): what each is given to, and what it takes.

An allow-list of what Muster really applies. `docs/reference/advanced-parameters.md` is made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from runtime_envs.advanced.values import (
    Reader,
    amount,
    choice,
    folder,
    integer,
    labels,
    number,
    resources,
    selector,
)

WORKER_PORTS = range(10002, 20000)
"""Ray's own; the dashboards of local clusters lie above."""
MIN_OBJECT_STORE_BYTES = 75 * 2**20
SETUP_TIMEOUT = "runtime_env.config.setup_timeout_seconds"
EAGER_INSTALL = "runtime_env.config.eager_install"


class Scope(StrEnum):
    """What a parameter is given to."""

    NODE = "node"
    """`ray start` of every node."""
    SYSTEM = "system"
    """Ray's own configuration, by its head."""
    AUTOSCALER = "autoscaler"
    JOB = "job"
    """One submission."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    scope: Scope
    takes: str
    """For people."""
    read: Reader


def _on(scope: Scope, takes: str, read: Reader) -> Parameter:
    return Parameter(scope=scope, takes=takes, read=read)


_SWITCH = choice(true=True, false=False)
_PORT = integer(WORKER_PORTS.start, WORKER_PORTS.stop - 1)
_PORT_TAKES = f"{WORKER_PORTS.start} to {WORKER_PORTS.stop - 1}; both or neither, 100 ports at least"

CATALOGUE: Mapping[str, Parameter] = {
    "object-store-memory": _on(
        Scope.NODE, "bytes, 78643200 to half the memory of the smallest node", integer(MIN_OBJECT_STORE_BYTES, 2**50)
    ),
    "object-spilling-directory": _on(Scope.NODE, "an absolute path inside a writable volume of the cluster", folder),
    "labels": _on(Scope.NODE, "`key=value,key=value`", labels),
    "resources": _on(Scope.NODE, 'a JSON object of custom resources, `{"licence": 2}`; of every worker', resources),
    "min-worker-port": _on(Scope.NODE, _PORT_TAKES, _PORT),
    "max-worker-port": _on(Scope.NODE, _PORT_TAKES, _PORT),
    "include-log-monitor": _on(Scope.NODE, "`true` or `false`", _SWITCH),
    "disable-usage-stats": _on(Scope.NODE, "`true` (as without it) or `false`", _SWITCH),
    "idle_timeout_s": _on(Scope.AUTOSCALER, "30 to 86400", integer(30, 86_400)),
    "upscaling_mode": _on(
        Scope.AUTOSCALER,
        "`Default`, `Conservative` or `Aggressive`",
        choice(default="Default", conservative="Conservative", aggressive="Aggressive"),
    ),
    "upscaling_speed": _on(Scope.AUTOSCALER, "0.1 to 100", number(0.1, 100)),
    "memory_usage_threshold": _on(Scope.SYSTEM, "0.5 to 0.99", number(0.5, 0.99)),
    "memory_monitor_refresh_ms": _on(Scope.SYSTEM, "50 to 60000", integer(50, 60_000)),
    "task_events_max_num_task_in_gcs": _on(Scope.SYSTEM, "1000 to 10000000", integer(1000, 10_000_000)),
    "health_check_period_ms": _on(Scope.SYSTEM, "500 to 60000", integer(500, 60_000)),
    "health_check_timeout_ms": _on(Scope.SYSTEM, "500 to 60000", integer(500, 60_000)),
    "health_check_failure_threshold": _on(Scope.SYSTEM, "2 to 100", integer(2, 100)),
    "max_io_workers": _on(Scope.SYSTEM, "1 to 64", integer(1, 64)),
    "object_spilling_threshold": _on(Scope.SYSTEM, "0.1 to 1", number(0.1, 1)),
    "entrypoint_num_cpus": _on(Scope.JOB, "0 to 4096, in steps of 0.0001", amount(4096)),
    "entrypoint_num_gpus": _on(Scope.JOB, "0 to 1024, whole above 1", amount(1024, whole_above_one=True)),
    "entrypoint_memory": _on(Scope.JOB, "bytes", integer(0, 2**50)),
    "entrypoint_resources": _on(Scope.JOB, 'a JSON object of custom resources, `{"licence": 1}`', resources),
    "entrypoint_label_selector": _on(Scope.JOB, 'a JSON object, `{"zone": "in(a,b)"}`', selector),
    SETUP_TIMEOUT: _on(Scope.JOB, "60 to 7200", integer(60, 7200)),
    EAGER_INSTALL: _on(Scope.JOB, "`true` or `false`", _SWITCH),
    "dedup_logs": _on(Scope.JOB, "`true` or `false`", choice(true="1", false="0")),
    "log_level": _on(
        Scope.JOB,
        "`debug`, `info`, `warning`, `error` or `critical`",
        choice(debug="debug", info="info", warning="warning", error="error", critical="critical"),
    ),
}

SHORT: Mapping[str, str] = {"eager_install": EAGER_INSTALL}
"""Other spellings of the same key."""
