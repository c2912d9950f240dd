"""Pure: what stands behind an address below `/ray`, and the definition that a submission there becomes."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from api.ray_endpoint.submit_request import SubmitRequest
from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from rayjobs.model.job import JobSpec, Requirements, RunMode

GIB = 2**30
DEFAULT = "default"


class TargetKind(StrEnum):
    CLUSTER = "clusters"
    GROUP = "groups"
    JOB = "jobs"
    """A stored job, with what the submission says on top."""
    BUILT_IN = "default"
    """A cluster made for the run, in the resource group `default`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    kind: TargetKind
    name: str = ""

    @classmethod
    def parse(cls, text: str | None) -> "Target":
        """Of the setting `ray_default_target`."""
        if text is None:
            return cls(kind=TargetKind.BUILT_IN)
        kind, _, name = text.partition("/")
        return cls(kind=TargetKind(kind), name=name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else str(self.kind)


def job_spec(target: Target, asked: SubmitRequest, stored: JobSpec | None = None) -> JobSpec:
    """`stored` is the job that a target of the kind JOB names."""
    base = stored or _base(target, asked)
    own_code = "working_dir" in asked.runtime_env
    return replace(
        base,
        name="",
        package=None if own_code else base.package,
        entrypoint=asked.entrypoint,
        runtime_env=_merge_env(base.runtime_env, asked.runtime_env),
        metadata={**base.metadata, **asked.metadata},
        advanced_parameters={**base.advanced_parameters, **_advanced(asked)},
        requirements=None if base.run_mode is RunMode.ON_DEMAND else _charge(base.requirements, asked),
    )


def _base(target: Target, asked: SubmitRequest) -> JobSpec:
    if target.kind is TargetKind.CLUSTER:
        return JobSpec(name="", run_mode=RunMode.CLUSTER, cluster=target.name, entrypoint="")
    if target.kind is TargetKind.GROUP:
        return JobSpec(name="", run_mode=RunMode.CLUSTER_GROUP, cluster_group=target.name, entrypoint="")
    return JobSpec(
        name="",
        run_mode=RunMode.ON_DEMAND,
        resource_package=DEFAULT,
        resource_group=DEFAULT,
        head=NodeSpec(cpu=1, memory_gib=2),
        worker_groups=(_worker(asked),),
        entrypoint="",
    )


def _worker(asked: SubmitRequest) -> WorkerGroup:
    """At least as large as what the driver asks for."""
    least = NodeSpec()
    return WorkerGroup(
        name="worker",
        cpu=max(least.cpu, math.ceil(asked.entrypoint_num_cpus)),
        memory_gib=max(least.memory_gib, math.ceil(asked.entrypoint_memory / GIB)),
        gpu=math.ceil(asked.entrypoint_num_gpus),
    )


def _merge_env(base: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Key by key, environment variables name by name; what is wrong in it is left for the job's check to say."""
    merged = {**base, **asked}
    variables = [env["env_vars"] for env in (base, asked) if isinstance(env.get("env_vars"), dict)]
    if len(variables) > 1:
        merged["env_vars"] = variables[0] | variables[1]
    return merged


def _advanced(asked: SubmitRequest) -> dict[str, str]:
    """The driver's own resources in the form in which a job keeps them."""
    amounts = {
        "entrypoint_num_cpus": f"{asked.entrypoint_num_cpus:f}".rstrip("0").rstrip("."),
        "entrypoint_num_gpus": f"{asked.entrypoint_num_gpus:f}".rstrip("0").rstrip("."),
        "entrypoint_memory": str(asked.entrypoint_memory),
        "entrypoint_resources": json.dumps(asked.entrypoint_resources),
        "entrypoint_label_selector": json.dumps(asked.entrypoint_label_selector),
    }
    return {name: text for name, text in amounts.items() if getattr(asked, name)}


def _charge(base: Requirements | None, asked: SubmitRequest) -> Requirements | None:
    """What the driver reserves counts on its cluster like what a job declares to need."""
    if not (asked.entrypoint_num_cpus or asked.entrypoint_num_gpus or asked.entrypoint_memory):
        return base
    needs = base or Requirements()
    return replace(
        needs,
        cpu=asked.entrypoint_num_cpus or needs.cpu,
        memory_gib=asked.entrypoint_memory / GIB or needs.memory_gib,
        gpu=math.ceil(asked.entrypoint_num_gpus) or needs.gpu,
    )
