"""What a run asks of a cluster, and what a cluster has to give; no word of rayjobs in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Reason
from kernel.resources import Resources


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterView:
    """A cluster as admission sees it. `state_reason` and `health_failure` tell people why it takes no work."""

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
    head_memory_gib: float = 4
    max_runs: int | None = None
    ray_version: str | None = None
    python_version: str | None = None
    state_reason: Reason | None = None
    health_failure: Reason | None = None
    on_demand: bool = False
    """Made for one run; nobody else may use it."""

    @property
    def total(self) -> Resources:
        return sum((node.total for node in self.nodes if node.alive), start=Resources())

    @property
    def capacity(self) -> Resources:
        """What there is or will be: a worker that is lost comes back."""
        now, most = self.total, self.maximum
        return Resources(
            cpu=max(now.cpu, most.cpu),
            memory_gib=max(now.memory_gib, most.memory_gib),
            gpu={name: max(now.gpu.get(name, 0), most.gpu.get(name, 0)) for name in sorted({*now.gpu, *most.gpu})},
        )

    @property
    def available(self) -> Resources:
        """What Ray itself says is free, as far as it says; others may use the cluster past Muster."""
        alive = [node for node in self.nodes if node.alive]
        return sum((node.available or node.total for node in alive), start=Resources())
