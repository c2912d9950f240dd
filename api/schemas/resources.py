"""Resource packages and resource groups (api.md §7)."""

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from api.schemas.base import In, Lax, Resource, WarningOut
from api.schemas.clusters import AmountsOut
from cluster_groups.model.quota import (
    ClusterUse,
    GpuCapacity,
    GroupConfig,
    GroupKind,
    GroupUse,
    PackageConfig,
    QueueSettings,
    ResourceGroup,
    ResourcePackage,
)
from kernel.resources import Resources


class GpuIn(In):
    count: float
    resource_name: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []

    def capacity(self) -> GpuCapacity:
        return GpuCapacity(
            count=self.count,
            resource_name=self.resource_name,
            node_selector=self.node_selector,
            tolerations=tuple(self.tolerations),
        )


class CapacityIn(In):
    cpu: float
    memory_gib: float
    gpu: dict[str, GpuIn] = {}

    def fields(self) -> dict[str, Any]:
        gpu = {name: one.capacity() for name, one in self.gpu.items()}
        return {"cpu": self.cpu, "memory_gib": self.memory_gib, "gpu": gpu}


class ResourcePackageEdit(In):
    name: str = ""
    capacity: CapacityIn = CapacityIn(cpu=0, memory_gib=0)
    backend: str | None = None
    namespace: str | None = None

    def changes(self) -> dict[str, Any]:
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"capacity"}}
        return {**sent, **self.capacity.fields()} if "capacity" in self.model_fields_set else sent


class ResourcePackageCreate(ResourcePackageEdit):
    name: str
    capacity: CapacityIn

    def config(self) -> PackageConfig:
        return PackageConfig(**self.changes())


class AmountsIn(In):
    cpu: float = 0
    memory_gib: float = 0
    gpu: dict[str, float] = {}

    def resources(self) -> Resources:
        return Resources(cpu=self.cpu, memory_gib=self.memory_gib, gpu=self.gpu)


class QueueIn(In):
    aging_s: int = 600
    reserve_after_s: int | None = 900

    def settings(self) -> QueueSettings:
        return QueueSettings(aging_s=self.aging_s, reserve_after_s=self.reserve_after_s)


class ResourceGroupEdit(In):
    name: str = ""
    resource_package: str = ""
    kind: Lax[GroupKind] = GroupKind.EXCLUSIVE
    quota: AmountsIn = AmountsIn()
    queue: QueueIn = QueueIn()

    def changes(self) -> dict[str, Any]:
        values = {
            "name": self.name,
            "resource_package": self.resource_package,
            "kind": self.kind,
            "quota": self.quota.resources(),
            "queue": self.queue.settings(),
        }
        return {name: values[name] for name in self.model_fields_set}


class ResourceGroupCreate(ResourceGroupEdit):
    name: str
    resource_package: str
    quota: AmountsIn

    def config(self) -> GroupConfig:
        return GroupConfig(**self.changes())


class GpuOut(BaseModel):
    count: float
    resource_name: str
    node_selector: dict[str, str]
    tolerations: list[dict[str, Any]]


class CapacityOut(BaseModel):
    cpu: float
    memory_gib: float
    gpu: dict[str, GpuOut]


class ResourcePackageOut(Resource):
    name: str
    capacity: CapacityOut
    backend: str | None
    namespace: str | None
    warnings: list[WarningOut] = []

    @classmethod
    def of(cls, package: ResourcePackage) -> "ResourcePackageOut":
        plain = asdict(package)
        return cls.model_validate({**plain, "capacity": plain})


class QueueOut(BaseModel):
    aging_s: int
    reserve_after_s: int | None


class ResourceGroupOut(Resource):
    name: str
    resource_package: str
    kind: GroupKind
    quota: AmountsOut
    queue: QueueOut
    warnings: list[WarningOut] = []

    @classmethod
    def of(cls, group: ResourceGroup) -> "ResourceGroupOut":
        return cls.model_validate(asdict(group))


class UsedOut(BaseModel):
    """`used` by clusters that are there, `reserved` for those that are still starting; together at most `max`."""

    used: float
    reserved: float
    max: float


class ResourceUseOut(BaseModel):
    cpu: UsedOut
    memory_gib: UsedOut
    gpu: dict[str, UsedOut]


class HolderOut(BaseModel):
    """One cluster that counts against the group, or the run such a cluster was made for."""

    name: str
    amount: AmountsOut
    is_starting: bool


class GroupUseOut(BaseModel):
    """Runs on clusters that were there before hold nothing of a group; their clusters do."""

    resources: ResourceUseOut
    clusters: list[HolderOut]
    runs: list[HolderOut]

    @classmethod
    def of(cls, use: GroupUse) -> "GroupUseOut":
        all_of = {name: UsedOut(**amounts) for name, amounts in use.by_resource().items()}
        gpu = {name.removeprefix("gpu."): one for name, one in all_of.items() if name.startswith("gpu.")}
        return cls(
            resources=ResourceUseOut(cpu=all_of["cpu"], memory_gib=all_of["memory_gib"], gpu=gpu),
            clusters=[_holder(one, one.cluster) for one in use.clusters if one.run is None],
            runs=[_holder(one, one.run) for one in use.clusters if one.run is not None],
        )


def _holder(use: ClusterUse, name: str) -> HolderOut:
    return HolderOut(name=name, amount=AmountsOut.of(use.amount), is_starting=use.is_starting)
