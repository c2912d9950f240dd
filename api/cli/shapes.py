"""Columns and nouns of the resources: what people see of each in a list."""

from api.cli.output import state_column
from api.cli.policy_text import change_text
from api.cli.tables import Column, column
from api.cli.verbs import Noun
from api.client import Json

_STAMPS = frozenset({"id", "revision", "created_at", "created_by", "updated_at", "warnings"})
_CLUSTER_STATUS = frozenset(
    {"state", "state_since", "state_reason", "health", "nodes", "nodes_up", "nodes_wanted", "load"}
)
_SHORT = 200
"""Characters up to which a list in an event is shown whole."""
_TASK_STATES = ("waiting", "running", "succeeded", "failed", "stopped")
_CLUSTER_FACTS = frozenset({"ray_version", "python_version", "can_call_back", "endpoint", "cordoned", "on_demand_run"})


def _target(record: Json) -> object:
    """Where it goes: the one of the three that its run mode has."""
    return record.get("cluster") or record.get("cluster_group") or record.get("resource_group")


def _cluster_state(cluster: Json) -> str:
    return f"{cluster.get('state')}, cordoned" if cluster.get("cordoned") else str(cluster.get("state"))


def _reason(run: Json) -> object:
    end, condition = run.get("end") or {}, run.get("condition") or {}
    return end.get("code") or condition.get("code")


def _job(run: Json) -> object:
    """What comes through the Ray Jobs endpoint is a job by the name its sender gave it."""
    return run.get("ray_submission_id") or run.get("job")


def _group_sizes(groups: list[Json] | None) -> Json:
    return {group["name"]: group["count"] for group in groups or ()}


def _task_states(run: Json) -> Json:
    """How many of its tasks are where, of all groups together."""
    groups = run.get("task_groups") or ()
    counts = {state: sum(group.get(state) or 0 for group in groups) for state in _TASK_STATES}
    return {state: count for state, count in counts.items() if count}


def _created() -> tuple[Column, Column]:
    return column("CREATED BY", "created_by"), column("CREATED", "created_at")


JOB = Noun(
    word="job",
    pick=lambda muster: muster.jobs,
    columns=(
        column("ID", "id"),
        column("NAME", "name", is_free=True),
        column("MODE", "run_mode"),
        column("TARGET", _target),
        column("PACKAGE", "package"),
        column("RUNNING", "run_counts.running"),
        column("PRIORITY", "priority"),
        column("TAGS", "tags", is_free=True),
        *_created(),
        column("TASKS", lambda job: _group_sizes(job.get("task_groups")), is_extra=True),
        column("DESCRIPTION", "description", is_free=True, is_extra=True),
    ),
    read_only=_STAMPS | {"run_counts", "inherited", "origin"},
)

RUN = Noun(
    word="run",
    pick=lambda muster: muster.runs,
    key="id",
    columns=(
        column("ID", "id"),
        column("JOB", _job, is_free=True),
        state_column(),
        column("REASON", _reason),
        column("TARGET", _target),
        *_created(),
        column("ENDED", "ended_at"),
        column("PRIORITY", "priority", is_extra=True),
        column("TASKS", _task_states, is_extra=True),
        column("STARTED", "started_at", is_extra=True),
        column(
            "DETAIL",
            lambda run: (run.get("end") or run.get("condition") or {}).get("detail"),
            is_free=True,
            is_extra=True,
        ),
    ),
)

PACKAGE = Noun(
    word="package",
    pick=lambda muster: muster.packages,
    key="id",
    columns=(
        column("ID", "id"),
        column("FILE", "file_name", is_free=True),
        column("BYTES", "size_bytes"),
        column("ENTRIES", "entries"),
        *_created(),
        column("SHA256", "sha256", is_extra=True),
    ),
)

UPLOAD = Noun(
    word="upload",
    pick=lambda muster: muster.uploads,
    key="id",
    columns=(
        column("ID", "id"),
        column("FILE", "file_name", is_free=True),
        column("BYTES", "size_bytes"),
        column("SENT", "offset_bytes"),
        column("EXPIRES", "expires_at"),
        *_created(),
        column("SHA256", "sha256", is_extra=True),
    ),
)

CLUSTER = Noun(
    word="cluster",
    pick=lambda muster: muster.clusters,
    columns=(
        column("NAME", "name"),
        column("KIND", "kind"),
        state_column("STATE", _cluster_state),
        state_column("HEALTH", "health.status"),
        column("NODES", lambda cluster: f"{cluster.get('nodes_up', 0)}/{cluster.get('nodes_wanted', 0)}"),
        column("RAY", "ray_version"),
        column("RESOURCE GROUP", "resource_group"),
        *_created(),
        column("ID", "id", is_extra=True),
        column("REASON", "state_reason.detail", is_free=True),
    ),
    read_only=_STAMPS | _CLUSTER_STATUS | _CLUSTER_FACTS,
)

GROUP = Noun(
    word="group",
    pick=lambda muster: muster.groups,
    columns=(
        column("NAME", "name"),
        column("PRESET", "policy.preset"),
        column("MEMBERS", lambda group: [member.get("cluster") for member in group.get("members") or ()], is_free=True),
        *_created(),
        column("ID", "id", is_extra=True),
        column("DESCRIPTION", "description", is_free=True, is_extra=True),
    ),
    read_only=_STAMPS,
)

REVISION = Noun(
    word="revision",
    pick=lambda muster: muster.groups,
    key="revision",
    columns=(
        column("REVISION", "revision"),
        column("CREATED", "created_at"),
        column("BY", "created_by"),
        column("COMMENT", "comment", is_free=True),
        column("CHANGES", lambda revision: [change_text(one) for one in revision.get("changes") or ()], is_free=True),
    ),
)

VOLUME = Noun(
    word="volume",
    pick=lambda muster: muster.volumes,
    columns=(
        column("NAME", "name"),
        column("TYPE", "type"),
        column("SOURCE", "source"),
        column("CREDENTIAL", "credential"),
        *_created(),
        column("ID", "id", is_extra=True),
    ),
    read_only=_STAMPS,
)

RESOURCE_PACKAGE = Noun(
    word="package",
    pick=lambda muster: muster.resource_packages,
    columns=(
        column("NAME", "name"),
        column("CPU", "capacity.cpu"),
        column("MEMORY GIB", "capacity.memory_gib"),
        column("GPU", lambda package: _counts((package.get("capacity") or {}).get("gpu"))),
        column("BACKEND", "backend"),
        *_created(),
        column("ID", "id", is_extra=True),
    ),
    read_only=_STAMPS,
)

RESOURCE_GROUP = Noun(
    word="group",
    pick=lambda muster: muster.resource_groups,
    columns=(
        column("NAME", "name"),
        column("PACKAGE", "resource_package"),
        column("KIND", "kind"),
        column("CPU", "quota.cpu"),
        column("MEMORY GIB", "quota.memory_gib"),
        column("GPU", lambda group: _counts((group.get("quota") or {}).get("gpu"))),
        *_created(),
        column("ID", "id", is_extra=True),
    ),
    read_only=_STAMPS,
)

TOKEN = Noun(
    word="token",
    pick=lambda muster: muster.tokens,
    columns=(
        column("NAME", "name"),
        column("USER", "user"),
        column("ROLE", "role"),
        column("RESOURCE PACKAGES", "resource_packages"),
        column("EXPIRES", "expires_at"),
        *_created(),
        column("ID", "id", is_extra=True),
    ),
)

CREDENTIAL = Noun(
    word="credential",
    pick=lambda muster: muster.credentials,
    columns=(
        column("NAME", "name"),
        column("TYPE", "type"),
        *_created(),
        column("ID", "id", is_extra=True),
    ),
)

AUDIT = Noun(
    word="entry",
    pick=lambda muster: muster.audit,
    key="id",
    columns=(
        column("AT", "at"),
        column("ACTOR", "actor"),
        column("ACTION", "action"),
        column("TYPE", "target_type"),
        column("TARGET", "target", is_free=True),
        column("DETAIL", "detail", is_free=True),
        column("ID", "id", is_extra=True),
    ),
)

EVENT = Noun(
    word="event",
    pick=lambda muster: muster.runs,
    key="id",
    columns=(
        column("AT", "at"),
        column("EVENT", "type"),
        column("ACTOR", "actor"),
        column("DETAIL", lambda event: _gist(event.get("params")), is_free=True),
    ),
)

TASK = Noun(
    word="task",
    pick=lambda muster: muster.runs,
    key="index",
    columns=(
        column("GROUP", "group"),
        column("TASK", "index"),
        state_column(),
        column("EXIT CODE", "exit_code"),
        column("ADDRESS", "container_ip"),
        column("HOST", "host_ip"),
        column("STARTED", "started_at"),
        column("ENDED", "ended_at"),
        column("NODE", "node_ip", is_extra=True),
        column("GROUP INDEX", "group_index", is_extra=True),
    ),
)

USAGE = Noun(
    word="usage",
    pick=lambda muster: muster.usage,
    key="key",
    columns=(
        column("KEY", "key", is_free=True),
        column("RUNS", "runs"),
        column("CPU HOURS", lambda row: hours(row["cpu_seconds"])),
        column("GIB HOURS", lambda row: hours(row["memory_gib_seconds"])),
        column("GPU HOURS", lambda row: {name: hours(held) for name, held in row["gpu_seconds"].items()}),
        column("HOLD", lambda row: _waste(row, "gang_hold")),
        column("COLD START", lambda row: _waste(row, "cold_start")),
        column("FAILED", lambda row: _waste(row, "failed_attempts")),
    ),
)

QUEUED = Noun(
    word="run",
    pick=lambda muster: muster.runs,
    key="run",
    columns=(
        column("POSITION", "position"),
        column("RUN", "run"),
        column("JOB", _job, is_free=True),
        column("PRIORITY", "effective_priority"),
        column("REASON", "condition.code"),
        column("HELD ON", "condition.params.held_on"),
        column("PREDICTED START", "predicted_start"),
    ),
)


def _gist(told: object) -> object:
    """Of what a process has left behind, many lines perhaps, the first that says something; `-o json` has the rest."""
    if isinstance(told, dict):
        return {name: _gist(entry) for name, entry in told.items()}
    lines = told if isinstance(told, list) else str(told).splitlines()
    said = [line for line in map(str, lines) if any(character.isalnum() for character in line)]
    if len(said) < 2 or (isinstance(told, list) and sum(map(len, said)) <= _SHORT):
        return told
    return f"{said[0].strip()} …"


def hours(seconds: float) -> float:
    return round(seconds / 3600, 2)


def _waste(usage: Json, kind: str) -> str | None:
    """Of the CPUs: of the rest `-o json` tells."""
    spent = usage["waste"][kind]["cpu_seconds"]
    return f"{hours(spent):g}" if spent else None


def _counts(gpu: Json | None) -> Json:
    """Types and numbers, whether a type has more to it or not."""
    return {name: entry["count"] if isinstance(entry, dict) else entry for name, entry in (gpu or {}).items()}
