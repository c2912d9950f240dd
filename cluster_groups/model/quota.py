"""Bought pools of resources (packages) and the queues cut from them (groups)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kernel.resources import Resources, total


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
    is_starting: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupUse:
    """Which clusters hold how much of a resource group's quota."""

    maximum: Resources
    clusters: tuple[ClusterUse, ...]

    @property
    def used(self) -> Resources:
        """Until a cluster is gone, whatever became of it."""
        return total(one.amount for one in self.clusters if not one.is_starting)

    @property
    def reserved(self) -> Resources:
        """For clusters that are on their way up and do no work yet."""
        return total(one.amount for one in self.clusters if one.is_starting)

    def by_resource(self) -> dict[str, dict[str, float]]:
        """By dimension, as `Resources.flat` names them: used, reserved and max."""
        kinds = {"used": self.used.flat(), "reserved": self.reserved.flat(), "max": self.maximum.flat()}
        names = dict.fromkeys(name for amounts in kinds.values() for name in amounts)
        return {name: {kind: amounts.get(name, 0) for kind, amounts in kinds.items()} for name in names}
