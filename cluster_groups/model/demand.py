"""What a run asks of a cluster, and what a cluster has to give; no word of rayjobs in it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node, NodeShape
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Reason
from kernel.resources import Resources, total
from runtime_envs.volumes.available import WantedMount
from runtime_envs.volumes.model import Mount


class PlacementStrategy(StrEnum):
    """Ray's own four, of which the strict ones are promises (ray.util.placement_group)."""

    STRICT_SPREAD = "STRICT_SPREAD"
    """Each bundle on a node of its own."""
    SPREAD = "SPREAD"
    PACK = "PACK"
    STRICT_PACK = "STRICT_PACK"
    """All bundles on one node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundles:
    """`count` bundles of one size, each of which must lie on one node; those of a task group."""

    size: Resources
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """`resources.gpu` is keyed by the one type asked for, or by any type when `gpu_types` is empty.

    A gang has `bundles`, and `resources` is their sum; what has none may take its resources from anywhere.
    """

    resources: Resources = field(default_factory=Resources)
    bundles: tuple[Bundles, ...] = ()
    strategy: PlacementStrategy = PlacementStrategy.STRICT_SPREAD
    gpu_types: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ray_version: str | None = None
    python_version: str | None = None
    mounts: tuple[WantedMount, ...] = ()
    packages: tuple[str, ...] | None = None
    """Resource packages whose clusters whoever submitted it may use; None: all."""

    def __hash__(self) -> int:
        """Of many runs most ask for the same."""
        return hash((self.resources, self.bundles, self.strategy, self.gpu_types, frozenset(self.labels.items())))


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """A cluster as admission sees it. `state_reason` and `health_failure` tell people why it takes no work.

    No slots: what is summed over thousands of nodes is summed once.
    """

    id: str
    name: str
    kind: ClusterKind
    state: ClusterState
    health: HealthStatus
    cordoned: bool = False
    resource_group: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    maximum: Resources = field(default_factory=Resources)
    """What it is configured to have, however much of that is alive; nothing where its nodes are somebody else's."""
    planned: tuple[NodeShape, ...] = ()
    """The same node by node."""
    growth: tuple[NodeShape, ...] = ()
    """Nodes it may still add by itself, beyond those that are alive."""
    head_memory_gib: float = 4
    max_runs: int | None = None
    ray_version: str | None = None
    python_version: str | None = None
    state_since: datetime | None = None
    state_reason: Reason | None = None
    health_failure: Reason | None = None
    recovered_at: datetime | None = None
    """When it was well again after it was last ill."""
    resource_package: str | None = None
    mounts: tuple[Mount, ...] = ()
    """The volumes it is registered with."""
    is_absent: bool = False
    """All its processes were seen to be gone. Of one that fell, nodes may still be there for a while."""
    on_demand: bool = False
    """Made for one run; nobody else may use it."""
    can_call_back: bool = False
    """Its head is known to reach Muster, so that its runs can have leases."""

    @cached_property
    def total(self) -> Resources:
        return total(node.total for node in self.nodes if node.alive)

    @cached_property
    def capacity(self) -> Resources:
        """What there is or will be: a worker that is lost comes back."""
        now, most = self.total, self.maximum
        return Resources(
            cpu=max(now.cpu, most.cpu),
            memory_gib=max(now.memory_gib, most.memory_gib),
            gpu={name: max(now.gpu.get(name, 0), most.gpu.get(name, 0)) for name in sorted({*now.gpu, *most.gpu})},
        )

    @cached_property
    def largest(self) -> tuple[NodeShape, ...]:
        """The nodes it would have if none were lost and all were added that may be; equal ones together."""
        alive = [node for node in self.nodes if node.alive]
        groups = Counter(node.group for node in alive)
        lost = (replace(shape, count=max(0, shape.count - groups[shape.group])) for shape in self.planned)
        sizes = Counter(node.total for node in alive)
        there = (NodeShape(group="", size=size, count=count) for size, count in sizes.items())
        return (*there, *lost, *self.growth)

    @cached_property
    def available(self) -> Resources:
        """What Ray itself says is free, as far as it says; others may use the cluster past Muster."""
        return total(node.available or node.total for node in self.nodes if node.alive)
