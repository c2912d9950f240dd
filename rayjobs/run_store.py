"""Queries on runs and attempts, and the way between rows and values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import first_counts
from cluster_groups.model.demand import Bundles, Demand, PlacementStrategy
from kernel.errors import NotFound
from kernel.paging import Page, PageRequest, paginate
from kernel.resources import ANY_GPU, Resources, total
from rayjobs.advanced import submission_options
from rayjobs.model.job import JobSpec, Requirements, RunMode
from rayjobs.model.run import (
    PLACED_STATES,
    AttemptState,
    Condition,
    End,
    EndClass,
    EndCode,
)
from rayjobs.tables import IS_UNSETTLED, AttemptRow, DecisionRow, RunRow, RunTagRow
from runtime_envs.volumes.available import WantedMount
from runtime_envs.volumes.model import Mount, VolumeType

SORTABLE = {"created_at": RunRow.id, "state": RunRow.state, "job": RunRow.job_name}
FILTERS = {
    "cluster": RunRow.cluster,
    "cluster_group": RunRow.cluster_group,
    "resource_group": RunRow.resource_group,
    "created_by": RunRow.created_by,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """`equal` by the fields of FILTERS; no `states` are all; `job` is an id or a name; `tag` is `key:value`."""

    equal: Mapping[str, str]
    states: Sequence[str] = ()
    job: str | None = None
    tag: str | None = None


async def get_run(session: AsyncSession, run_id: str, *, lock: bool = False) -> RunRow:
    """`lock`: nobody else changes it before this unit of work is over."""
    row = await session.get(RunRow, run_id, with_for_update=lock or None, populate_existing=lock)
    if row is None:
        raise NotFound("NOT_FOUND", kind="run", ref=run_id)
    return row


async def page_of_runs(session: AsyncSession, wanted: RunFilter, request: PageRequest) -> Page[RunRow]:
    statement: Select[RunRow] = select(RunRow)
    for name, value in wanted.equal.items():
        statement = statement.where(FILTERS[name] == value)
    if wanted.states:
        statement = statement.where(RunRow.state.in_(wanted.states))
    if wanted.job is not None:
        column = RunRow.job_id if wanted.job.startswith("job_") else RunRow.job_name
        statement = statement.where(column == wanted.job)
    if wanted.tag is not None:
        key, _, value = wanted.tag.partition(":")
        tagged = select(RunTagRow.run_id).where(RunTagRow.key == key, RunTagRow.value == value)
        statement = statement.where(RunRow.id.in_(tagged))
    return await paginate(session, statement, request, sortable=SORTABLE, key=RunRow.id)


async def attempts_of(session: AsyncSession, run_ids: Sequence[str]) -> dict[str, list[AttemptRow]]:
    """By run id, oldest first."""
    found: dict[str, list[AttemptRow]] = {run_id: [] for run_id in run_ids}
    statement = select(AttemptRow).where(AttemptRow.run_id.in_(run_ids)).order_by(AttemptRow.epoch)
    for row in await session.scalars(statement):
        found[row.run_id].append(row)
    return found


async def latest_attempt(session: AsyncSession, run_id: str) -> AttemptRow | None:
    statement = select(AttemptRow).where(AttemptRow.run_id == run_id).order_by(AttemptRow.epoch.desc())
    return (await session.scalars(statement.limit(1))).one_or_none()


async def attempt_of(session: AsyncSession, run_id: str, epoch: int) -> AttemptRow:
    statement = select(AttemptRow).where(AttemptRow.run_id == run_id, AttemptRow.epoch == epoch)
    row = (await session.scalars(statement)).one_or_none()
    if row is None:
        raise NotFound("NOT_FOUND", kind="attempt", ref=str(epoch))
    return row


async def live_runs_on(session: AsyncSession, cluster_id: str) -> list[str]:
    """Runs that are placed on this cluster and not over."""
    placed = select(RunRow.id).where(RunRow.cluster_id == cluster_id, RunRow.state.in_(PLACED_STATES))
    return sorted(await session.scalars(placed))


async def settling_on(session: AsyncSession, cluster_id: str) -> list[str]:
    """Attempts that are over and whose log is still being read from the cluster."""
    collecting = AttemptRow.state == AttemptState.COLLECTING
    statement = select(AttemptRow.id).where(AttemptRow.cluster_id == cluster_id, collecting)
    return sorted(await session.scalars(statement))


async def unsettled_runs_of(session: AsyncSession, job_id: str) -> list[str]:
    statement = select(RunRow.id).where(RunRow.job_id == job_id, IS_UNSETTLED)
    return sorted(await session.scalars(statement))


async def decisions_of(session: AsyncSession, run_id: str) -> list[dict[str, Any]]:
    statement = select(DecisionRow.decision).where(DecisionRow.run_id == run_id).order_by(DecisionRow.seq)
    return list(await session.scalars(statement))


def queue_of(spec: JobSpec) -> str:
    """The queue its runs wait in."""
    names = {
        RunMode.ON_DEMAND: f"resource_group/{spec.resource_group}",
        RunMode.CLUSTER: f"cluster/{spec.cluster}",
        RunMode.CLUSTER_GROUP: f"cluster_group/{spec.cluster_group}",
    }
    return names[spec.run_mode]


def demand_of(spec: JobSpec) -> Demand:
    """What a run of this job takes: its own cluster at its least, or what it declares to need on an existing one.

    A driver that asks Ray for resources of its own holds at least those.
    """
    if spec.run_mode is RunMode.ON_DEMAND:
        head = [spec.head.resources] if spec.head else []
        counts = first_counts(spec.worker_groups)
        workers = [group.resources * counts[group.name] for group in spec.worker_groups]
        return Demand(resources=total([*head, *workers]))
    needs = spec.requirements or Requirements()
    if spec.is_gang:
        return gang_demand(spec)
    driver = submission_options(spec.advanced_parameters).fields
    gpus = max(float(needs.gpu), float(driver.get("entrypoint_num_gpus", 0)))
    gpu = {needs.gpu_types[0] if needs.gpu_types else ANY_GPU: gpus} if gpus else {}
    return Demand(
        resources=Resources(
            cpu=max(needs.cpu, driver.get("entrypoint_num_cpus", 0)),
            memory_gib=max(needs.memory_gib, driver.get("entrypoint_memory", 0) / 2**30),
            gpu=gpu,
        ),
        **_kind_of(spec),
    )


def gang_demand(spec: JobSpec) -> Demand:
    """A gang is charged by its tasks; its driver takes only a slot of the head."""
    return Demand(
        resources=total(group.resources * group.count for group in spec.task_groups),
        bundles=tuple(Bundles(size=group.resources, count=group.count) for group in spec.task_groups),
        strategy=spec.placement_strategy,
        **_kind_of(spec),
    )


def _kind_of(spec: JobSpec) -> dict[str, Any]:
    """What a cluster must be like, however large."""
    needs = spec.requirements or Requirements()
    return {
        "gpu_types": needs.gpu_types,
        "labels": needs.labels,
        "ray_version": needs.ray_version,
        "python_version": needs.python_version,
    }


def start_timeout_of(spec: JobSpec) -> int:
    """How long its own cluster, and the places of its tasks, are waited for."""
    own_cluster = spec.start_timeout_s if spec.run_mode is RunMode.ON_DEMAND else 0
    return own_cluster + (spec.gang_timeout_s if spec.is_gang else 0)


def resources_to_json(amounts: Resources) -> dict[str, Any]:
    return {"cpu": amounts.cpu, "memory_gib": amounts.memory_gib, "gpu": dict(amounts.gpu)}


def resources_from_json(data: Mapping[str, Any]) -> Resources:
    return Resources(cpu=data["cpu"], memory_gib=data["memory_gib"], gpu=data["gpu"])


def demand_to_json(demand: Demand) -> dict[str, Any]:
    return {
        **resources_to_json(demand.resources),
        "bundles": [{**resources_to_json(one.size), "count": one.count} for one in demand.bundles],
        "strategy": str(demand.strategy),
        "gpu_types": list(demand.gpu_types),
        "labels": dict(demand.labels),
        "ray_version": demand.ray_version,
        "python_version": demand.python_version,
        "mounts": [{**asdict(one.mount), "type": str(one.type)} for one in demand.mounts],
        "packages": None if demand.packages is None else list(demand.packages),
    }


def demand_from_json(data: Mapping[str, Any]) -> Demand:
    return Demand(
        resources=resources_from_json(data),
        bundles=tuple(Bundles(size=resources_from_json(one), count=one["count"]) for one in data.get("bundles", ())),
        strategy=PlacementStrategy(data.get("strategy", PlacementStrategy.STRICT_SPREAD)),
        gpu_types=tuple(data["gpu_types"]),
        labels=data["labels"],
        ray_version=data["ray_version"],
        python_version=data["python_version"],
        mounts=tuple(_wanted(one) for one in data.get("mounts", ())),
        packages=None if data.get("packages") is None else tuple(data["packages"]),
    )


def _wanted(data: Mapping[str, Any]) -> WantedMount:
    mount = {name: value for name, value in data.items() if name != "type"}
    return WantedMount(mount=Mount(**mount), type=VolumeType(data["type"]))


def condition_to_json(condition: Condition) -> dict[str, Any]:
    predicted = {} if condition.predicted_start is None else {"predicted_start": condition.predicted_start.isoformat()}
    return {
        "code": condition.code,
        "owner": condition.owner,
        "params": dict(condition.params),
        "since": condition.since.isoformat(),
        **predicted,
    }


def condition_from_json(data: Mapping[str, Any] | None) -> Condition | None:
    if data is None:
        return None
    predicted = data.get("predicted_start")
    return Condition(
        code=data["code"],
        owner=data["owner"],
        params=data["params"],
        since=datetime.fromisoformat(data["since"]),
        predicted_start=datetime.fromisoformat(predicted) if predicted else None,
    )


def end_to_json(end: End) -> dict[str, Any]:
    where = {} if end.task_group is None else {"task_group": end.task_group, "task": end.task}
    return {"class": end.end_class, "code": end.code, "exit_code": end.exit_code, "params": dict(end.params), **where}


def end_from_json(data: Mapping[str, Any] | None) -> End | None:
    if data is None:
        return None
    return End(
        end_class=EndClass(data["class"]),
        code=EndCode(data["code"]),
        exit_code=data["exit_code"],
        params=data["params"],
        task_group=data.get("task_group"),
        task=data.get("task"),
    )
