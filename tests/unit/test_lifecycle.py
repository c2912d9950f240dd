"""What a cluster wants of its backend in each state; what follows is told by tests/db/test_cluster_loops.py."""

from datetime import timedelta

import pytest

from cluster_groups.decide.lifecycle import CLEANING_UP, SETTLE_S, Sight, Want, standing_after, want_of
from cluster_groups.model.cluster import CLUSTER_TRANSITIONS, ClusterKind, ClusterState, Observed, Phase
from cluster_groups.model.health import Health
from kernel.reasons import Reason
from tests.builders.clusters import NOW, a_cluster

REASONS = (None, CLEANING_UP, Reason(code="CLUSTER_VANISHED"), Reason(code="HEAD_LOST"))


@pytest.mark.parametrize(
    ("state", "want"),
    [
        (ClusterState.CREATED, None),
        (ClusterState.STARTING, Want.UP),
        (ClusterState.RUNNING, Want.UP),
        (ClusterState.STOPPING, Want.ABSENT),
        (ClusterState.STOPPED, None),
        (ClusterState.FAILED, Want.ABSENT),
        (ClusterState.DELETING, Want.ABSENT),
        (ClusterState.DELETED, None),
    ],
)
def test_want_of_a_managed_cluster(state: ClusterState, want: Want | None) -> None:
    assert want_of(Sight(cluster=a_cluster(state)), NOW) is want
    attached = a_cluster(state, kind=ClusterKind.ATTACHED)
    assert want_of(Sight(cluster=attached), NOW) is (want if state is ClusterState.DELETING else None)


@pytest.mark.parametrize("state", [ClusterState.STOPPING, ClusterState.DELETING])
def test_held_back_it_wants_nothing(state: ClusterState) -> None:
    assert want_of(Sight(cluster=a_cluster(state), held_back=True, is_settling=True), NOW) is None


@pytest.mark.parametrize("state", [ClusterState.STOPPING, ClusterState.DELETING])
def test_logs_are_waited_for_but_not_for_ever(state: ClusterState) -> None:
    sight = Sight(cluster=a_cluster(state), is_settling=True)
    assert want_of(sight, NOW + timedelta(seconds=SETTLE_S - 1)) is Want.UNTOUCHED
    assert want_of(sight, NOW + timedelta(seconds=SETTLE_S)) is Want.ABSENT


@pytest.mark.parametrize("autostart", [False, True])
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("state", ClusterState)
def test_every_step_is_in_the_table(
    state: ClusterState, phase: Phase, reason: Reason | None, *, autostart: bool
) -> None:
    cluster = a_cluster(state, state_reason=reason, autostart=autostart, idle_stop_s=0, health=Health(since=NOW))
    standing = standing_after(Sight(cluster=cluster, idle_since=NOW), Observed(phase=phase), NOW, 0)
    assert standing.state is state or standing.state in CLUSTER_TRANSITIONS[state]
