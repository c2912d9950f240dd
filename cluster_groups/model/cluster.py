"""A Ray cluster Muster knows: what was asked for, where it stands, and what was seen of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cluster_groups.model.health import Health
from kernel.reasons import Reason
from kernel.resources import ANY_GPU, Resources, total
from kernel.states import Transitions
from runtime_envs.volumes.available import Site
from runtime_envs.volumes.model import Mount

HEAD_GROUP = "head"
ON_DEMAND_PREFIX = "od-"
"""Of the names of clusters that are made for one run."""
LOCAL = "local"
"""The backend of local processes."""


class ClusterKind(StrEnum):
    MANAGED = "managed"
    """Made, started, stopped and deleted by Muster through a backend."""
    ATTACHED = "attached"
    """Someone else's; Muster only talks to it."""


class ClusterState(StrEnum):
    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    DELETING = "DELETING"
    DELETED = "DELETED"
    """Never shown: the row is kept so that the history of its runs still has a name."""


CLUSTER_TRANSITIONS: Transitions[ClusterState] = {
    ClusterState.CREATED: frozenset({ClusterState.STARTING, ClusterState.DELETING}),
    ClusterState.STARTING: frozenset(
        {ClusterState.RUNNING, ClusterState.FAILED, ClusterState.STOPPING, ClusterState.DELETING}
    ),
    ClusterState.RUNNING: frozenset({ClusterState.STOPPING, ClusterState.FAILED, ClusterState.DELETING}),
    ClusterState.STOPPING: frozenset({ClusterState.STOPPED, ClusterState.DELETING}),
    ClusterState.STOPPED: frozenset({ClusterState.STARTING, ClusterState.DELETING}),
    ClusterState.FAILED: frozenset({ClusterState.STARTING, ClusterState.STOPPING, ClusterState.DELETING}),
    ClusterState.DELETING: frozenset({ClusterState.DELETED}),
    ClusterState.DELETED: frozenset(),
}

EDITABLE = frozenset({ClusterState.CREATED, ClusterState.STOPPED, ClusterState.FAILED})
"""A changed configuration takes effect at the next start, so it may change only while nothing runs."""

HOLDS_RESOURCES = frozenset(
    {ClusterState.STARTING, ClusterState.RUNNING, ClusterState.STOPPING, ClusterState.FAILED, ClusterState.DELETING}
)
"""States in which a managed cluster counts against its resource group (requirements A19)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    cpu: float = 2
    memory_gib: float = 4
    gpu: int = 0
    gpu_type: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> Resources:
        gpu = {self.gpu_type or ANY_GPU: float(self.gpu)} if self.gpu else {}
        return Resources(cpu=self.cpu, memory_gib=self.memory_gib, gpu=gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerGroup(NodeSpec):
    name: str
    min_instances: int = 1
    max_instances: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeShape:
    """`count` nodes of one size; `group` is the name of their node group."""

    group: str
    size: Resources
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSpec:
    """What a backend needs to make the cluster. `id` is the seed of every outside name."""

    id: str
    name: str
    head: NodeSpec
    worker_groups: tuple[WorkerGroup, ...]
    image: str | None = None
    advanced_parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def minimum(self) -> Resources:
        """Head and workers that it starts with."""
        return total([self.head.resources, *(one.resources * self.workers[one.name] for one in self.worker_groups)])

    @property
    def workers(self) -> Mapping[str, int]:
        return first_counts(self.worker_groups)

    @property
    def offered(self) -> Resources:
        """What runs find there once every node is up."""
        return total(shape.size * shape.count for shape in self.offered_nodes)

    @property
    def offered_nodes(self) -> tuple[NodeShape, ...]:
        """The workers, and of the head its memory only."""
        head = NodeShape(group=HEAD_GROUP, size=Resources(memory_gib=self.head.memory_gib), count=1)
        counts = self.workers
        workers = (NodeShape(group=one.name, size=one.resources, count=counts[one.name]) for one in self.worker_groups)
        return (head, *workers)


def first_counts(worker_groups: Sequence[WorkerGroup]) -> dict[str, int]:
    """How many of each group are started: its least; one in all if that left none, as the head runs no tasks."""
    counts = {group.name: group.min_instances for group in worker_groups}
    growing = next((group for group in worker_groups if group.max_instances > 0), None)
    if growing and not any(counts.values()):
        counts[growing.name] = 1
    return counts


def site_of(kind: ClusterKind, volumes: tuple[Mount, ...]) -> Site:
    """Clusters that Muster makes have its plugin, which mounts for each run; others what they are registered with."""
    is_managed = kind is ClusterKind.MANAGED
    return Site(has_plugin=is_managed, attached=() if is_managed else volumes)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterConfig:
    """What a person asks for (api.md §5). Other resources are referred to by name."""

    name: str
    kind: ClusterKind
    backend: str | None = None
    resource_package: str | None = None
    resource_group: str | None = None
    image: str | None = None
    head: NodeSpec | None = None
    worker_groups: tuple[WorkerGroup, ...] = ()
    volumes: tuple[Mount, ...] = ()
    advanced_parameters: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    credential: str | None = None
    allow_open: bool = False
    """An administrator takes it although its Jobs API asks nobody for a token."""
    autostart: bool = False
    """Started when it is made and whenever the service starts."""
    idle_stop_s: int | None = None
    max_runs: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster(ClusterConfig):
    """A stored cluster: its configuration, and where it stands."""

    id: str
    created_at: datetime
    created_by: str
    revision: int
    state: ClusterState
    state_since: datetime
    state_reason: Reason | None
    cordoned: bool
    on_demand_run: str | None
    health: Health
    nodes: tuple["Node", ...]
    nodes_up: int
    nodes_wanted: int
    ray_version: str | None
    python_version: str | None
    can_call_back: bool | None

    @property
    def spec(self) -> ClusterSpec:
        """For a backend; attached clusters have none."""
        if self.head is None:
            raise ValueError(f"{self.id} is not managed")
        return ClusterSpec(
            id=self.id,
            name=self.name,
            head=self.head,
            worker_groups=self.worker_groups,
            image=self.image,
            advanced_parameters=self.advanced_parameters,
        )

    @property
    def minimum_workers(self) -> int:
        return sum(group.min_instances for group in self.worker_groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRef:
    """As much of a cluster as a new run needs to know."""

    id: str
    resource_package: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """How Muster reaches a cluster's Jobs API; the token is Ray's own, None where the cluster has none."""

    address: str
    token: str | None = None

    @property
    def authorization(self) -> dict[str, str]:
        """As a header, where there is a token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def __repr__(self) -> str:
        return f"Endpoint(address={self.address!r})"  # a token must not reach a log by way of a repr


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One Ray node as the cluster itself tells. `group` is "head" or the worker group's name, None if unknown."""

    id: str
    ip: str
    group: str | None
    alive: bool
    is_head: bool
    total: Resources
    available: Resources | None = None


class Phase(StrEnum):
    """Where a backend stands with one cluster."""

    ABSENT = "absent"
    """Nothing of it is left: no process, no pod, no file of a run."""
    STARTING = "starting"
    UP = "up"
    """The head answers and every minimum worker was started."""
    STOPPING = "stopping"
    BROKEN = "broken"
    """It cannot come up or has fallen down; `reason` says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What a backend sees. `nodes_up` of `nodes_wanted` counts processes or pods, head included."""

    phase: Phase
    nodes_up: int = 0
    nodes_wanted: int = 0
    reason: Reason | None = None
    endpoint: Endpoint | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """One look at a cluster through its own HTTP. `failure` is None when every check passed."""

    at: datetime
    failure: Reason | None = None
    ray_version: str | None = None
    python_version: str | None = None
    nodes: tuple[Node, ...] | None = None
    is_open: bool | None = None
    """Whether its Jobs API answers anybody, with a token or without; None when its jobs were not listed."""
