"""What the processes of a local cluster amount to: where it stands, and which nodes are to be started now. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cluster_groups.backends.local_state import LocalCluster, LocalNode
from cluster_groups.model.cluster import Observed, Phase
from kernel.reasons import Reason

MAX_PORTS = 5
RESTART_PAUSE_S = 10.0


class Fate(StrEnum):
    UNBORN = "unborn"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """Ended before it had joined its cluster."""
    LOST = "lost"
    """Ended after that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """One look at one node; the rest tells how it ended, if it did."""

    fate: Fate
    exit_code: int | None = None
    last_lines: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        return self.fate in {Fate.FAILED, Fate.LOST}


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    cluster: LocalCluster
    nodes: Mapping[str, Sight]
    port_is_busy: bool = False
    """Someone else has the dashboard's port. Looked at only when the head has failed to start."""

    @property
    def head(self) -> Sight:
        return self.nodes[self.cluster.head.name]


def judge(look: Look) -> Observed:
    """STARTING with all nodes up means: ask the head itself, then call it UP."""
    cluster = look.cluster
    up = sum(sight.fate is Fate.READY for sight in look.nodes.values())
    reason = _why_broken(look)
    if cluster.stopping_since is not None:
        phase = Phase.STOPPING
    elif reason:
        phase = Phase.BROKEN
    elif cluster.came_up:
        phase = Phase.UP
    else:
        phase = Phase.STARTING
    return Observed(
        phase=phase,
        nodes_up=up,
        nodes_wanted=len(cluster.nodes),
        reason=reason if phase is Phase.BROKEN else None,
        endpoint=cluster.endpoint if phase is Phase.UP else None,
    )


def needs_other_port(look: Look) -> bool:
    return look.head.fate is Fate.FAILED and look.port_is_busy and look.cluster.ports_tried < MAX_PORTS


def due_nodes(look: Look, now_s: float) -> list[LocalNode]:
    """The head once, its workers as soon as it is up, and again the workers that were lost."""
    cluster = look.cluster
    if look.head.fate is Fate.UNBORN:
        return [cluster.head]
    if look.head.fate is not Fate.READY:
        return []
    return [node for node in cluster.nodes[1:] if _is_due(look, node, now_s)]


def _is_due(look: Look, worker: LocalNode, now_s: float) -> bool:
    fate = look.nodes[worker.name].fate
    if fate is Fate.FAILED:
        return look.cluster.came_up and now_s - worker.started_at >= RESTART_PAUSE_S
    return fate in {Fate.UNBORN, Fate.LOST}


def _why_broken(look: Look) -> Reason | None:
    cluster, head = look.cluster, look.head
    if needs_other_port(look):
        return None
    if head.fate is Fate.FAILED and look.port_is_busy:
        return Reason(code="PORT_IN_USE", params={"port": cluster.dashboard_port, "tried": cluster.ports_tried})
    if head.fate is Fate.LOST or (head.fate is Fate.FAILED and cluster.came_up):
        return Reason(code="HEAD_LOST", params=_ending(cluster.head, head))
    if cluster.came_up:
        return None  # a cluster that runs is not broken by a worker that does not come back
    failed = [node for node in cluster.nodes if look.nodes[node.name].fate is Fate.FAILED]
    if not failed:
        return None
    return Reason(code="NODE_PROCESS_EXITED", params=_ending(failed[0], look.nodes[failed[0].name]))


def _ending(node: LocalNode, sight: Sight) -> dict[str, object]:
    return {
        "group": node.group,
        "node": node.name,
        "exit_code": sight.exit_code,
        "last_lines": list(sight.last_lines),
    }
