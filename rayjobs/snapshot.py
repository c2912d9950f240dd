"""The frozen views decisions are made from. Loaded by the reconcilers, built by hand in tests and the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup, OnClusterLoss
from cluster_groups.model.quota import ResourceGroup
from kernel.resources import Resources, total
from rayjobs.model.job import JobSpec, Retry, RunMode, TaskGroup
from rayjobs.model.run import AttemptState, Condition, End, EndCode, RunState

HELD_ON = "held_on"
"""In the params of a condition: the cluster or resource group whose free capacity is held for the run."""
NO_ROOM_SINCE = "no_room_since"
"""The same: since when the open members of its cluster group have had no room for it, and nothing else was amiss."""
BESIDE_LIMIT_S = 20
"""What a run takes beside its limit, as a rule: to send it, to start its driver, and for the grace at its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingRun:
    id: str
    version: int
    run_mode: RunMode
    state: RunState
    queue: str
    enqueued_at: datetime
    demand: Demand
    priority: int | None = None
    max_wait_s: int | None = None
    max_runtime_s: int | None = None
    """Declared, and enforced from when its command starts."""
    start_timeout_s: int = 0
    """How long its own cluster may take to come up, and its tasks to find their places, before that."""
    not_before: datetime | None = None
    """Until then it stays back: after a start that was given back, or before another try."""
    is_releasing: bool = False
    """An earlier attempt of it is not confirmed over."""
    free_from: datetime | None = None
    """When another may start all the same (`successor`); None: not before that."""
    is_evicted: bool = False
    """It waits for a cluster group because the cluster it was on was lost."""
    waiting_since: datetime | None = None
    """What `max_wait_s` counts from; None: `enqueued_at`."""
    epoch: int = 0
    """Of its latest attempt."""
    cluster: str | None = None
    cluster_id: str | None = None
    cluster_group: str | None = None
    resource_group: str | None = None
    condition: Condition | None = None
    tried: frozenset[str] = frozenset()
    """Clusters where an attempt of it went wrong, and not by its own fault."""

    @property
    def no_room_since(self) -> datetime | None:
        since = None if self.condition is None else self.condition.params.get(NO_ROOM_SINCE)
        return None if since is None else datetime.fromisoformat(since)

    @property
    def held_on(self) -> str | None:
        """Whose capacity was held for it when it was last looked at, and shall be until it starts."""
        return None if self.condition is None else self.condition.params.get(HELD_ON)

    def gives_back_by(self, started: datetime) -> datetime | None:
        """When it will have given back what it takes, if it starts now; None: nobody knows."""
        if self.max_runtime_s is None:
            return None
        return started + timedelta(seconds=self.start_timeout_s + BESIDE_LIMIT_S + self.max_runtime_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What one live attempt, or one cluster of a resource group, holds, and until when at the latest if that is known.

    `nodes` says by node id how much of `amount` lies where: of gangs only, planned first and then as Ray placed it.
    """

    run: str | None
    amount: Resources
    ends_by: datetime | None = None
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    cluster_group: str | None = None
    """Through which the run came there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What Muster's own ledger counts on one cluster: live attempts, those of them not yet RUNNING, what they hold."""

    drivers: int = 0
    starting: int = 0
    held: tuple[Held, ...] = ()
    stale: int = 0
    """Attempts that were given up as lost there and are not confirmed over."""

    @property
    def used(self) -> Resources:
        return total(one.amount for one in self.held)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionSnapshot:
    """`clusters` by id, `groups` and `resource_groups` by name, `load` by cluster id, `quota_held` by group name."""

    runs: tuple[WaitingRun, ...]
    clusters: Mapping[str, ClusterView]
    groups: Mapping[str, ClusterGroup] = field(default_factory=dict)
    resource_groups: Mapping[str, ResourceGroup] = field(default_factory=dict)
    load: Mapping[str, Load] = field(default_factory=dict)
    quota_held: Mapping[str, tuple[Held, ...]] = field(default_factory=dict)
    """What the clusters of each resource group take of its quota."""
    moves: tuple[datetime, ...] = ()
    """When runs that had lost their clusters were last sent to others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptView:
    """One attempt with what its next step depends on. `cluster` is None once the cluster is deleted."""

    id: str
    version: int
    epoch: int
    state: AttemptState
    state_since: datetime
    created_at: datetime
    posted_at: datetime | None
    started_at: datetime | None
    lost_since: datetime | None
    driver_address: str | None
    allocated_at: datetime | None = None
    events_bytes: int = 0
    verdict: End | None = None
    end: End | None
    run_id: str
    run_version: int
    run_state: RunState
    run_mode: RunMode
    task_groups: tuple[TaskGroup, ...] = ()
    retry: Retry = field(default_factory=Retry)
    tries: int = 0
    """Attempts before this one that count for the retry."""
    stop_code: EndCode | None
    """Set once somebody or something asked for the stop."""
    start_timeout_s: int
    stop_grace_s: int
    max_runtime_s: int | None
    lost_timeout_s: int
    on_cluster_loss: OnClusterLoss | None = None
    """By the policy that chose its cluster; None: no policy says."""
    retry_safe: bool = False
    """By its job's word it may run twice at once."""
    window_ends_at: datetime | None = None
    """When the window of its member closes, where that ends what runs there."""
    is_held_up: bool = False
    """Its cluster was away, and is to get nothing before everything is over there that went on without Muster."""
    watched_since: datetime | None = None
    """Since when this process has looked; before that nobody may have. None: long since."""
    lease_ttl_s: int | None = None
    """None: no lease."""
    lease_until: datetime | None = None
    """By the last renewal that was accepted; None: there was none, and nothing of the user's has begun."""
    cluster_id: str
    cluster_name: str
    cluster: ClusterView | None
    log_complete: bool
    """Of a gang those of its tasks, too."""

    @property
    def is_gang(self) -> bool:
        return bool(self.task_groups)

    @property
    def cluster_is_own(self) -> bool:
        """Made for this run, and deleted with it."""
        return self.run_mode is RunMode.ON_DEMAND

    @property
    def is_let_go(self) -> bool:
        """It is to stop, and what of it would go on goes with its cluster, or is nobody's any more."""
        return self.stop_code is not None and (self.cluster_is_own or self.stop_code is EndCode.FORCED)

    @property
    def cluster_is_gone(self) -> bool:
        """Confirmed, not suspected: nothing of this attempt can be running there any more."""
        gone = {ClusterState.FAILED, ClusterState.STOPPED, ClusterState.DELETED}
        return self.cluster is None or self.cluster.state in gone


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptSnapshot:
    """The view, and what is needed once to submit it: the job's revision, whose uploads it may use, where it was."""

    view: AttemptView
    spec: JobSpec
    owner: str
    previous_cluster: str | None = None
