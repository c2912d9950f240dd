"""What is simulated: clusters, resource groups and the work that comes, as people write it down (YAML or JSON)."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cluster_groups.model.demand import PlacementStrategy

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=10**6, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Nodes(_Part):
    """`count` nodes of one size."""

    count: Count = 1
    cpu: Amount
    memory_gib: Amount = 0
    gpu: Amount = 0
    gpu_type: Name | None = None


class SimulatedCluster(_Part):
    """`resource_group`: whose queue settings it takes, as with real clusters."""

    name: Name
    nodes: list[Nodes]
    resource_group: Name | None = None


class SimulatedGroup(_Part):
    """A resource group; a quota that is not given does not limit."""

    name: Name
    cpu: Amount = 10**6
    memory_gib: Amount = 10**6
    gpu: dict[Name, Amount] = {}
    aging_s: Annotated[int, Field(ge=10)] = 600
    reserve_after_s: Annotated[int, Field(ge=0)] | None = 900


class Arrivals(StrEnum):
    FIXED = "fixed"
    """One each `every_s`."""
    POISSON = "poisson"
    """Independent of each other, `every_s` apart on average."""


class Spread(StrEnum):
    CONSTANT = "constant"
    EXPONENTIAL = "exponential"


class Workload(_Part):
    """`count` runs of one kind. More than one task makes each of them a gang; the sizes are those of one task.

    `cluster` or `resource_group` says where: on a cluster that is there, or on one made for each run out of a quota.
    `max_runtime_s` is what the runs declare; none: nothing is known of how long they take.
    """

    name: Name
    cluster: Name | None = None
    resource_group: Name | None = None
    count: Count = 1
    tasks: Count = 1
    cpu: Amount = 1
    memory_gib: Amount = 0
    gpu: Amount = 0
    gpu_type: Name | None = None
    placement_strategy: PlacementStrategy = PlacementStrategy.STRICT_SPREAD
    priority: Annotated[int, Field(ge=1, le=9)] = 5
    first_at_s: Seconds = 0
    every_s: Seconds = 0
    arrivals: Arrivals = Arrivals.FIXED
    runtime_s: Seconds
    runtime: Spread = Spread.CONSTANT
    max_runtime_s: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.cluster is None) == (self.resource_group is None):
            raise ValueError("give exactly one of cluster and resource_group")
        return self


class Trace(_Part):
    """`look_every_s` is how often the queue is looked at at most, `seed` makes what is random repeatable."""

    version: Literal[1] = 1
    seed: int = 1
    look_every_s: Annotated[float, Field(gt=0)] = 1.0
    clusters: list[SimulatedCluster] = []
    resource_groups: list[SimulatedGroup] = []
    workloads: Annotated[list[Workload], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_hold(self) -> Self:
        for kind, names in (
            ("clusters", [one.name for one in self.clusters]),
            ("resource_groups", [one.name for one in self.resource_groups]),
            ("workloads", [one.name for one in self.workloads]),
        ):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{kind}: named twice: {', '.join(twice)}")
        clusters = {one.name for one in self.clusters}
        groups = {one.name for one in self.resource_groups}
        for work in self.workloads:
            if (work.cluster and work.cluster not in clusters) or (
                work.resource_group and work.resource_group not in groups
            ):
                raise ValueError(f"workload {work.name}: there is no {work.cluster or work.resource_group}")
        return self
