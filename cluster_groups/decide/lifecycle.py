"""What a managed cluster wants of its backend, and what follows from where the backend stands with it."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from cluster_groups.model.cluster import Cluster, ClusterKind, ClusterState, Observed, Phase
from kernel.reasons import Owner, Reason

CLEANING_UP = Reason(code="CLEANING_UP")
"""The remains of a failed start are removed before the next one begins."""
VANISHED = Reason(code="CLUSTER_VANISHED")
"""Nothing is left of a cluster that ran, as after a restart of the machine."""
BROKEN = Reason(code="CLUSTER_BROKEN")

_ENDED = {ClusterState.STOPPING: ClusterState.STOPPED, ClusterState.DELETING: ClusterState.DELETED}


SETTLE_S = 60.0
"""For how long the logs of runs that are over hold back the end of their cluster."""


class Want(StrEnum):
    UP = "up"
    ABSENT = "absent"
    UNTOUCHED = "untouched"
    """As it is for now: what its runs left there is being copied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """A cluster with what else its next step depends on."""

    cluster: Cluster
    held_back: bool = False
    """Live runs hold back its end, and nobody forced it."""
    is_settling: bool = False
    """Runs are over there whose log is still to be copied."""
    idle_since: datetime | None = None
    """Since when nothing runs on it; None while something does, or when nobody asked to stop it when idle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where the cluster stands after a look at it."""

    state: ClusterState
    reason: Reason | None = None
    nodes_up: int = 0
    nodes_wanted: int = 0


def want_of(sight: Sight, now: datetime) -> Want | None:
    """None: nothing to do, or not yet."""
    cluster = sight.cluster
    if cluster.kind is ClusterKind.ATTACHED and cluster.state is not ClusterState.DELETING:
        return None
    match cluster.state:
        case ClusterState.STARTING if cluster.state_reason == CLEANING_UP:
            return Want.ABSENT
        case ClusterState.STARTING | ClusterState.RUNNING:
            return Want.UP
        case ClusterState.FAILED:
            return Want.ABSENT
        case ClusterState.STOPPING | ClusterState.DELETING if not sight.held_back:
            patient = now - cluster.state_since < timedelta(seconds=SETTLE_S)
            return Want.UNTOUCHED if sight.is_settling and patient else Want.ABSENT
    return None


def standing_after(sight: Sight, observed: Observed, now: datetime, start_timeout_s: float) -> Standing:
    cluster = sight.cluster
    absent = observed.phase is Phase.ABSENT
    as_it_was = Standing(
        state=cluster.state,
        reason=cluster.state_reason,
        nodes_up=observed.nodes_up,
        nodes_wanted=observed.nodes_wanted,
    )
    match cluster.state:
        case ClusterState.STARTING if cluster.state_reason == CLEANING_UP:
            return replace(as_it_was, reason=None) if absent else as_it_was
        case ClusterState.STARTING:
            return _starting(cluster, observed, now, start_timeout_s)
        case ClusterState.RUNNING:
            return _running(sight, observed, now)
        case ClusterState.STOPPING | ClusterState.DELETING if absent:
            return replace(as_it_was, state=_ENDED[cluster.state])
        case ClusterState.FAILED if absent and cluster.autostart and cluster.state_reason == VANISHED:
            return replace(as_it_was, state=ClusterState.STARTING, reason=None)
    return as_it_was


def _starting(cluster: Cluster, observed: Observed, now: datetime, start_timeout_s: float) -> Standing:
    standing = Standing(
        state=ClusterState.STARTING,
        reason=observed.reason,
        nodes_up=observed.nodes_up,
        nodes_wanted=observed.nodes_wanted,
    )
    if observed.phase is Phase.UP:
        return replace(standing, state=ClusterState.RUNNING)
    if observed.phase is Phase.BROKEN:
        return replace(standing, state=ClusterState.FAILED, reason=observed.reason or BROKEN)
    overdue = now - cluster.state_since >= timedelta(seconds=start_timeout_s)
    if not overdue or cluster.on_demand_run is not None:  # a run has its own patience
        return standing
    params = {
        "timeout_s": start_timeout_s,
        "nodes_up": observed.nodes_up,
        "nodes_wanted": observed.nodes_wanted,
        "last": observed.reason.code if observed.reason else None,
    }
    return replace(standing, state=ClusterState.FAILED, reason=Reason(code="CLUSTER_START_TIMEOUT", params=params))


def _running(sight: Sight, observed: Observed, now: datetime) -> Standing:
    standing = Standing(state=ClusterState.RUNNING, nodes_up=observed.nodes_up, nodes_wanted=observed.nodes_wanted)
    idle_stop_s = sight.cluster.idle_stop_s
    if observed.phase is Phase.BROKEN:
        return replace(standing, state=ClusterState.FAILED, reason=observed.reason or BROKEN)
    if observed.phase is Phase.ABSENT:
        return replace(standing, state=ClusterState.FAILED, reason=VANISHED)
    if sight.idle_since is None or idle_stop_s is None or now - sight.idle_since < timedelta(seconds=idle_stop_s):
        return standing
    reason = Reason(code="IDLE_STOPPED", owner=Owner.USER, params={"idle_stop_s": idle_stop_s})
    return replace(standing, state=ClusterState.STOPPING, reason=reason)
