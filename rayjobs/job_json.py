"""A job's definition as JSON, in the shape of `POST /jobs`; what old revisions lack takes its default."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from cluster_groups.model.demand import PlacementStrategy
from rayjobs.model.job import JobSpec, Requirements, Retry, RunMode, TaskGroup
from runtime_envs.volumes.model import Mount

Value = TypeVar("Value")


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    return {**asdict(spec), "run_mode": str(spec.run_mode), "placement_strategy": str(spec.placement_strategy)}


def spec_from_json(data: Mapping[str, Any]) -> JobSpec:
    values: dict[str, Any] = dict(data)
    values["run_mode"] = RunMode(data["run_mode"])
    values["mounts"] = tuple(_value(Mount, mount) for mount in data.get("mounts", ()))
    values["worker_groups"] = tuple(_value(WorkerGroup, group) for group in data.get("worker_groups", ()))
    values["task_groups"] = tuple(_value(TaskGroup, group) for group in data.get("task_groups", ()))
    if "placement_strategy" in data:
        values["placement_strategy"] = PlacementStrategy(data["placement_strategy"])
    if data.get("head") is not None:
        values["head"] = _value(NodeSpec, data["head"])
    if data.get("requirements") is not None:
        values["requirements"] = _value(Requirements, _with_tuple(data["requirements"], "gpu_types"))
    if "retry" in data:
        values["retry"] = _value(Retry, _with_tuple(data["retry"], "on"))
    return _value(JobSpec, values)


def _with_tuple(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {**data, name: tuple(data[name])} if name in data else data


def _value(kind: type[Value], data: Mapping[str, Any]) -> Value:
    """Ignores what a newer version of Muster has written beside what this one knows."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    return kind(**{name: value for name, value in data.items() if name in known})
