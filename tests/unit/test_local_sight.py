from dataclasses import replace

import pytest

from cluster_groups.backends.local_sight import (
    MAX_PORTS,
    RESTART_PAUSE_S,
    Fate,
    Look,
    Sight,
    due_nodes,
    judge,
    needs_other_port,
)
from cluster_groups.backends.local_state import LocalCluster, LocalNode
from cluster_groups.model.cluster import Phase

NOW_S = 1000.0
NAMES = ("head", "w-0", "w-1")
CLUSTER = LocalCluster(
    id="clu_1",
    folder="/tmp/m",
    token="t",
    dashboard_port=20001,
    nodes=tuple(LocalNode(name=name, group=name.split("-")[0], ip="127.0.0.2", started_at=NOW_S) for name in NAMES),
)
RUNNING = replace(CLUSTER, came_up=True)
STOPPING = replace(RUNNING, stopping_since=NOW_S)


def look(cluster: LocalCluster, fates: str, *, port_is_busy: bool = False) -> Look:
    """One letter a node, head first: unborn, starting, ready, failed, lost."""
    by_letter = {fate.value[0]: fate for fate in Fate}
    sights = [Sight(fate=by_letter[letter], exit_code=1, last_lines=("why",)) for letter in fates]
    return Look(cluster=cluster, nodes=dict(zip(NAMES, sights, strict=True)), port_is_busy=port_is_busy)


@pytest.mark.parametrize(
    ("cluster", "fates", "phase", "up", "code"),
    [
        (CLUSTER, "uuu", Phase.STARTING, 0, None),
        (CLUSTER, "suu", Phase.STARTING, 0, None),
        (CLUSTER, "rsr", Phase.STARTING, 2, None),
        (CLUSTER, "rrr", Phase.STARTING, 3, None),
        (CLUSTER, "rlr", Phase.STARTING, 2, None),
        (CLUSTER, "fuu", Phase.BROKEN, 0, "NODE_PROCESS_EXITED"),
        (CLUSTER, "rfr", Phase.BROKEN, 2, "NODE_PROCESS_EXITED"),
        (CLUSTER, "lrr", Phase.BROKEN, 2, "HEAD_LOST"),
        (RUNNING, "rrr", Phase.UP, 3, None),
        (RUNNING, "rfl", Phase.UP, 1, None),
        (RUNNING, "lrr", Phase.BROKEN, 2, "HEAD_LOST"),
        (RUNNING, "frr", Phase.BROKEN, 2, "HEAD_LOST"),
        (STOPPING, "rrr", Phase.STOPPING, 3, None),
        (STOPPING, "lfl", Phase.STOPPING, 0, None),
    ],
)
def test_judge(cluster: LocalCluster, fates: str, phase: Phase, up: int, code: str | None) -> None:
    seen = judge(look(cluster, fates))
    assert (seen.phase, seen.nodes_up, seen.nodes_wanted) == (phase, up, 3)
    assert (seen.reason.code if seen.reason else None) == code
    assert (seen.endpoint is not None) == (phase is Phase.UP)


def test_a_broken_cluster_names_the_node_and_its_last_words() -> None:
    reason = judge(look(CLUSTER, "rrf")).reason
    assert reason
    assert reason.params == {"group": "w", "node": "w-1", "exit_code": 1, "last_lines": ["why"]}


class TestPorts:
    def test_a_head_that_failed_beside_a_busy_port_gets_another(self) -> None:
        seen = look(CLUSTER, "fuu", port_is_busy=True)
        assert needs_other_port(seen)
        assert judge(seen).phase is Phase.STARTING

    def test_but_not_for_ever(self) -> None:
        seen = look(replace(CLUSTER, ports_tried=MAX_PORTS), "fuu", port_is_busy=True)
        assert not needs_other_port(seen)
        reason = judge(seen).reason
        assert reason
        assert (reason.code, reason.params) == ("PORT_IN_USE", {"port": 20001, "tried": MAX_PORTS})

    def test_a_head_that_runs_keeps_its_port(self) -> None:
        assert not needs_other_port(look(RUNNING, "lrr", port_is_busy=True))


@pytest.mark.parametrize(
    ("cluster", "fates", "later_s", "due"),
    [
        (CLUSTER, "uuu", 0, ["head"]),
        (CLUSTER, "suu", 0, []),
        (CLUSTER, "ruu", 0, ["w-0", "w-1"]),
        (CLUSTER, "rsl", 0, ["w-1"]),
        (CLUSTER, "rrr", 0, []),
        (CLUSTER, "fuu", 99, []),
        (CLUSTER, "rfr", 99, []),
        (RUNNING, "luu", 99, []),
        (RUNNING, "rlr", 0, ["w-0"]),
        (RUNNING, "rfr", RESTART_PAUSE_S - 1, []),
        (RUNNING, "rfr", RESTART_PAUSE_S, ["w-0"]),
    ],
)
def test_due_nodes(cluster: LocalCluster, fates: str, later_s: float, due: list[str]) -> None:
    assert [node.name for node in due_nodes(look(cluster, fates), NOW_S + later_s)] == due
