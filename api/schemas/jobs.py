"""Jobs: what is asked for, what is shown (api.md §2). Defaults repeat those of the values they become."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from api.schemas.base import In, Lax, Resource, WarningOut, given, warnings_out
from api.schemas.clusters import MountIn, MountOut, NodeIn, NodeSpecOut, WorkerIn, WorkerOut
from api.schemas.groups import PolicyOut
from api.texts import Language
from cluster_groups.model.cluster import Cluster, ClusterState
from cluster_groups.model.demand import PlacementStrategy
from cluster_groups.model.group import Policy
from kernel.errors import Problem
from rayjobs.model.job import Job, JobRevision, JobSpec, RunCounts, RunMode


class TaskGroupIn(In):
    name: str = ""
    count: int
    cpu: float = 1
    memory_gib: float = 1
    gpu: int = 0
    gpu_type: str | None = None
    entrypoint: str
    min_succeeded: int | None = None
    min_failed: int | None = None


class RequirementsIn(In):
    cpu: float = 0
    memory_gib: float = 0
    gpu: int = 0
    gpu_types: list[str] = []
    labels: dict[str, str] = {}
    ray_version: str | None = None
    python_version: str | None = None


class RetryIn(In):
    max_attempts: int = 1
    on: list[str] = ["platform", "placement", "lost"]


class JobEdit(In):
    name: str = ""
    run_mode: Lax[RunMode] = RunMode.ON_DEMAND
    description: str = ""
    tags: dict[str, str] = {}
    resource_package: str | None = None
    resource_group: str | None = None
    priority: int | None = None
    image: str | None = None
    head: NodeIn | None = None
    worker_groups: list[WorkerIn] = []
    cluster: str | None = None
    cluster_group: str | None = None
    package: str | None = None
    entrypoint: str = ""
    task_groups: list[TaskGroupIn] = []
    placement_strategy: Lax[PlacementStrategy] = PlacementStrategy.STRICT_SPREAD
    gang_timeout_s: int = 600
    start_timeout_s: int = 1800
    stop_grace_s: int = 10
    requirements: RequirementsIn | None = None
    mounts: list[MountIn] = []
    runtime_env: dict[str, Any] = {}
    advanced_parameters: dict[str, str] = {}
    max_wait_s: int | None = None
    max_runtime_s: int | None = None
    retry: RetryIn = RetryIn()
    retry_safe: bool = False

    def changes(self) -> dict[str, Any]:
        return given(self, JobSpec)


class JobCreate(JobEdit):
    name: str
    run_mode: Lax[RunMode]

    def spec(self) -> JobSpec:
        return JobSpec(**self.changes())


class TaskGroupSpecOut(BaseModel):
    name: str
    count: int
    cpu: float
    memory_gib: float
    gpu: int
    gpu_type: str | None
    entrypoint: str
    min_succeeded: int | None
    min_failed: int | None


class RequirementsOut(BaseModel):
    cpu: float
    memory_gib: float
    gpu: int
    gpu_types: list[str]
    labels: dict[str, str]
    ray_version: str | None
    python_version: str | None


class RetryOut(BaseModel):
    max_attempts: int
    on: list[str]


class RunCountsOut(BaseModel):
    waiting: int = 0
    starting: int = 0
    running: int = 0
    total: int = 0


class InheritedCluster(BaseModel):
    """What a job of modes 2 and 3 takes over from a cluster (A30)."""

    name: str
    state: ClusterState
    image: str | None
    ray_version: str | None
    python_version: str | None
    head: NodeSpecOut | None
    worker_groups: list[WorkerOut]
    nodes_up: int
    nodes_wanted: int
    resource_package: str | None
    resource_group: str | None
    volumes: list[MountOut]
    advanced_parameters: dict[str, str]


class Inherited(BaseModel):
    """Of the target cluster, or of each member of the target group, as they were at `as_of`."""

    as_of: datetime
    policy: PolicyOut | None
    clusters: list[InheritedCluster]

    @classmethod
    def of(cls, clusters: Iterable[Cluster], policy: Policy | None, as_of: datetime) -> "Inherited":
        return cls(
            as_of=as_of,
            policy=PolicyOut.model_validate(asdict(policy)) if policy else None,
            clusters=[InheritedCluster.model_validate(asdict(cluster)) for cluster in clusters],
        )


class JobFields(BaseModel):
    """What `POST /jobs` takes, with defaults filled in."""

    name: str
    run_mode: RunMode
    description: str
    tags: dict[str, str]
    resource_package: str | None
    resource_group: str | None
    priority: int | None
    image: str | None
    head: NodeSpecOut | None
    worker_groups: list[WorkerOut]
    cluster: str | None
    cluster_group: str | None
    package: str | None
    entrypoint: str
    task_groups: list[TaskGroupSpecOut]
    placement_strategy: PlacementStrategy
    gang_timeout_s: int
    start_timeout_s: int
    stop_grace_s: int
    requirements: RequirementsOut | None
    mounts: list[MountOut]
    runtime_env: dict[str, Any]
    advanced_parameters: dict[str, str]
    max_wait_s: int | None
    max_runtime_s: int | None
    retry: RetryOut
    retry_safe: bool

    @classmethod
    def of_spec(cls, spec: JobSpec) -> "JobFields":
        return cls.model_validate(asdict(spec))


class JobOut(JobFields, Resource):
    revision: int
    warnings: list[WarningOut] = []
    run_counts: RunCountsOut = RunCountsOut()
    inherited: Inherited | None = None
    """Modes 2 and 3, and not in lists."""

    @classmethod
    def of(cls, job: Job, counts: RunCounts | None = None) -> "JobOut":
        stamps = {name: getattr(job, name) for name in ("id", "created_at", "created_by", "revision")}
        return cls.model_validate({**asdict(job.spec), **stamps, "run_counts": asdict(counts or RunCounts())})


class JobRevisionOut(JobFields):
    revision: int
    created_at: datetime
    created_by: str

    @classmethod
    def of(cls, revision: JobRevision) -> "JobRevisionOut":
        return cls.model_validate({**asdict(revision.spec), **asdict(revision)})


class NameCheckOut(BaseModel):
    available: bool
    reason: WarningOut | None

    @classmethod
    def of(cls, problem: Problem | None, language: Language) -> "NameCheckOut":
        reasons = warnings_out([problem] if problem else [], language)
        return cls(available=problem is None, reason=next(iter(reasons), None))
