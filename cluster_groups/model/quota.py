"""Bought pools of resources (packages) and the queues cut from them (groups)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kernel.resources import Resources


class GroupKind(StrEnum):
    EXCLUSIVE = "exclusive"
    SHARED = "shared"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCapacity:
    """Accelerators of one type in a package, and how Kubernetes names and places them."""

    count: float
    resource_name: str = "nvidia.com/gpu"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageConfig:
    """What a person asks for (api.md §7)."""

    name: str
    cpu: float
    memory_gib: float
    gpu: Mapping[str, GpuCapacity] = field(default_factory=dict)
    backend: str | None = None
    namespace: str | None = None

    @property
    def capacity(self) -> Resources:
        gpu = {name: capacity.count for name, capacity in self.gpu.items()}
        return Resources(cpu=self.cpu, memory_gib=self.memory_gib, gpu=gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcePackage(PackageConfig):
    id: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueSettings:
    """`reserve_after_s`: 0 is strict FIFO, None best effort (requirements §2.4)."""

    aging_s: int = 600
    reserve_after_s: int | None = 900


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """What a person asks for (api.md §7)."""

    name: str
    resource_package: str
    quota: Resources
    kind: GroupKind = GroupKind.EXCLUSIVE
    queue: QueueSettings = field(default_factory=QueueSettings)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceGroup(GroupConfig):
    id: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterUse:
    cluster: str
    run: str | None
    """The run it was made for."""
    amount: Resources


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupUse:
    """What the clusters of a resource group hold of its quota, and which they are."""

    used: Resources
    maximum: Resources
    clusters: tuple[ClusterUse, ...]
