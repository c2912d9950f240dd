"""A job: the saved definition a run is made from. Every edit makes a new immutable revision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cluster_groups.model.cluster import NodeSpec, WorkerGroup

DEFAULT_PRIORITY = 5


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
    entrypoint: str
    start_timeout_s: int = 1800
    stop_grace_s: int = 10
    requirements: Requirements | None = None
    mounts: tuple[Mapping[str, Any], ...] = ()
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    advanced_parameters: Mapping[str, str] = field(default_factory=dict)
    max_wait_s: int | None = None
    max_runtime_s: int | None = None
    retry: Retry = field(default_factory=Retry)
    retry_safe: bool = False
