"""A job: the saved definition a run is made from. Every edit makes a new immutable revision."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from cluster_groups.model.demand import PlacementStrategy
from kernel.resources import ANY_GPU, Resources
from runtime_envs.volumes.model import Mount

DEFAULT_PRIORITY = 5
MAIN_GROUP = "main"
"""The one group that a plain job is shown as having (R2)."""
FIRST_TASK_GROUP = "TaskG1"
"""What the only task group is called if nobody named it (R26)."""
TAG_KEY = re.compile(r"\w[\w./-]{0,62}")


class RunMode(StrEnum):
    ON_DEMAND = "on_demand"
    """A cluster is made for the run and deleted at its end."""
    CLUSTER = "cluster"
    """A named cluster."""
    CLUSTER_GROUP = "cluster_group"
    """A member that the group's policy picks."""


class Origin(StrEnum):
    API = "api"
    RAY_JOBS = "ray_jobs"
    """Made by a submission to the Ray Jobs endpoint; hidden from the list of jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirements:
    """What a plain job of modes 2 and 3 is charged and matched by. All zero: one driver slot of the head only."""

    cpu: float = 0
    memory_gib: float = 0
    gpu: int = 0
    gpu_types: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ray_version: str | None = None
    python_version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskGroup:
    """`count` identical tasks, each on one node, `entrypoint` in bash. None of the thresholds: R29 and R30."""

    name: str = ""
    """Empty only as it comes in: see `job_check.with_defaults`."""
    count: int
    cpu: float = 1
    memory_gib: float = 1
    gpu: int = 0
    gpu_type: str | None = None
    entrypoint: str
    min_succeeded: int | None = None
    min_failed: int | None = None

    @property
    def resources(self) -> Resources:
        """Of one task."""
        gpu = {self.gpu_type or ANY_GPU: float(self.gpu)} if self.gpu else {}
        return Resources(cpu=self.cpu, memory_gib=self.memory_gib, gpu=gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    max_attempts: int = 1
    on: tuple[str, ...] = ("platform", "placement", "lost")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """One revision's content, with defaults filled in. Other resources are referred to by name, the package by id."""

    name: str
    run_mode: RunMode
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    resource_package: str | None = None
    resource_group: str | None = None
    priority: int | None = None
    """1-9, 9 first; on_demand only, elsewhere None, which orders as 5 (A16)."""
    image: str | None = None
    head: NodeSpec | None = None
    worker_groups: tuple[WorkerGroup, ...] = ()
    cluster: str | None = None
    cluster_group: str | None = None
    package: str | None = None
    entrypoint: str = ""
    """Of a plain job; a multi-task job has task groups instead."""
    task_groups: tuple[TaskGroup, ...] = ()
    placement_strategy: PlacementStrategy = PlacementStrategy.STRICT_SPREAD
    gang_timeout_s: int = 600
    start_timeout_s: int = 1800
    stop_grace_s: int = 10
    requirements: Requirements | None = None
    mounts: tuple[Mount, ...] = ()
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    advanced_parameters: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What a client of the Ray Jobs endpoint keeps with its submission; handed on to Ray."""
    max_wait_s: int | None = None
    max_runtime_s: int | None = None
    retry: Retry = field(default_factory=Retry)
    retry_safe: bool = False

    @property
    def is_gang(self) -> bool:
        return bool(self.task_groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A stored job at its current revision. `id` is empty for one that a dry run only imagined."""

    id: str
    origin: Origin
    revision: int
    created_at: datetime
    created_by: str
    spec: JobSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRevision:
    revision: int
    created_at: datetime
    created_by: str
    spec: JobSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCounts:
    """Runs of one job; `total` has the ended ones too."""

    waiting: int = 0
    starting: int = 0
    running: int = 0
    total: int = 0
