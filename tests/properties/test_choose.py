"""What holds of every choice of a member."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.decide.choose import Decision, choose_member, match_cluster
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup, Member
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Reason
from kernel.resources import Resources
from tests.builders.clusters import NOW, a_group, a_node, a_view

NAMES = st.sampled_from("abcdefgh")
# As often fine as not, or nothing would ever be eligible.
STATES = st.one_of(st.just(ClusterState.RUNNING), st.sampled_from(ClusterState))
HEALTHS = st.one_of(st.just(HealthStatus.HEALTHY), st.sampled_from(HealthStatus))
RARELY = st.sampled_from([False, False, False, True])

members = st.builds(
    Member, cluster=NAMES, enabled=RARELY.map(lambda rare: not rare), cordoned=RARELY, order=st.integers(0, 3)
)
groups = st.lists(members, max_size=8, unique_by=lambda member: member.cluster).map(lambda made: a_group(*made))
nodes = st.lists(st.builds(a_node, cpu=st.integers(1, 8)), min_size=1, max_size=3).map(tuple)
views = st.dictionaries(
    NAMES, st.fixed_dictionaries({"state": STATES, "health": HEALTHS, "cordoned": RARELY, "nodes": nodes})
).map(lambda fields: {name: a_view(name, **one) for name, one in fields.items()})
demands = st.builds(Demand, resources=st.builds(Resources, cpu=st.integers(0, 12)))
rooms = st.dictionaries(NAMES, st.builds(Reason, code=st.sampled_from(["HEAD_BUSY", "QUEUED_BEHIND"])))


def takes_work(member: Member, view: ClusterView | None, demand: Demand) -> bool:
    return (
        view is not None
        and member.enabled
        and not member.cordoned
        and not view.cordoned
        and view.state is ClusterState.RUNNING
        and view.health is HealthStatus.HEALTHY
        and match_cluster(view, demand) is None
    )


def choose(group: ClusterGroup, there: dict[str, ClusterView], demand: Demand, lacks: dict[str, Any]) -> Decision:
    return choose_member(group, there, lacks, NOW, lambda view: match_cluster(view, demand))


@given(groups, views, demands, rooms)
def test_the_first_member_that_takes_work_and_has_room_is_chosen(
    group: ClusterGroup, there: dict[str, ClusterView], demand: Demand, room: dict[str, Reason]
) -> None:
    lacks: dict[str, Any] = {name: room.get(name) for name in there}
    decision = choose(group, there, demand, lacks)
    able = [
        member
        for member in group.members
        if takes_work(member, there.get(member.cluster), demand) and lacks[member.cluster] is None
    ]
    best = min(able, key=lambda member: (member.order, member.cluster), default=None)
    assert decision.chosen == (best.cluster if best else None)


@given(groups, views, demands, rooms)
def test_every_member_is_accounted_for_and_a_wait_has_a_reason(
    group: ClusterGroup, there: dict[str, ClusterView], demand: Demand, room: dict[str, Reason]
) -> None:
    decision = choose(group, there, demand, room)
    assert sorted(one.cluster for one in decision.candidates) == sorted(one.cluster for one in group.members)
    assert all(one.eligible == (one.reason is None) for one in decision.candidates)
    assert (decision.waiting is None) == (decision.chosen is not None)


@given(groups, views, demands, rooms, st.randoms(use_true_random=False))
def test_neither_the_lists_order_nor_the_moment_matters(
    group: ClusterGroup, there: dict[str, ClusterView], demand: Demand, room: dict[str, Reason], random: Any
) -> None:
    shuffled = list(group.members)
    random.shuffle(shuffled)
    again = a_group(*shuffled)
    assert choose(group, there, demand, room) == choose(again, there, demand, room)
