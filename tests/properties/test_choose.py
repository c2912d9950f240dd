"""What holds of every choice of a member (policy.md §2, §4, §6)."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from cluster_groups.decide.decision import Decision
from cluster_groups.decide.match import match_cluster
from cluster_groups.decide.rank import Offer
from cluster_groups.decide.windows import window_state
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import (
    ClusterGroup,
    Effect,
    Failback,
    Member,
    Policy,
    Rank,
    Window,
    WindowMode,
)
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Reason
from kernel.resources import Resources
from tests.builders.clusters import NOW, a_group, a_node, a_view
from tests.builders.policies import asked_of, chosen, decide

NAMES = st.sampled_from("abcdefgh")
ZONES = st.sampled_from(["UTC", "Asia/Shanghai", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe"])
# As often fine as not, or nothing would ever be eligible.
STATES = st.one_of(st.just(ClusterState.RUNNING), st.sampled_from(ClusterState))
HEALTHS = st.one_of(st.just(HealthStatus.HEALTHY), st.sampled_from(HealthStatus))
RARELY = st.sampled_from([False, False, False, True])
SECONDS = st.sampled_from([0, 1, 300, 600, 86_400])

walls = st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.sampled_from([0, 15, 30]))
days = st.sets(st.integers(1, 7), min_size=1).map(lambda some: tuple(sorted(some)))
windows = st.builds(
    Window,
    days=days,
    start=walls,
    end=walls,
    timezone=st.none() | ZONES,
    effect=st.sampled_from([Effect.OPEN, Effect.OPEN, Effect.CLOSED]),
)
members = st.builds(
    Member,
    cluster=NAMES,
    enabled=RARELY.map(lambda rare: not rare),
    cordoned=RARELY,
    order=st.integers(0, 3),
    weight=st.sampled_from([0, 1, 100]),
    tier=st.integers(0, 2),
    windows=st.lists(windows, max_size=2).map(tuple),
    max_running=st.none() | st.integers(1, 3),
)
policies = st.builds(
    Policy,
    rank=st.sampled_from(Rank),
    window_mode=st.sampled_from(WindowMode),
    failback=st.sampled_from(Failback),
    failback_stable_s=SECONDS,
    fit_in_window=st.booleans(),
)
groups = st.builds(
    lambda made, policy, zone: a_group(*made, policy=policy, timezone=zone, revised_at=NOW),
    st.lists(members, max_size=8, unique_by=lambda member: member.cluster),
    policies,
    ZONES,
)
views = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {
            "state": STATES,
            "health": HEALTHS,
            "cordoned": RARELY,
            "recovered_at": st.none() | SECONDS.map(lambda seconds: NOW - timedelta(seconds=seconds)),
            "nodes": st.lists(st.builds(a_node, cpu=st.integers(1, 8)), min_size=1, max_size=3).map(tuple),
        }
    ),
).map(lambda fields: {name: a_view(name, **one) for name, one in fields.items()})
demands = st.builds(Demand, resources=st.builds(Resources, cpu=st.integers(0, 12)))
wishes = st.fixed_dictionaries(
    {
        "tried": st.frozensets(NAMES),
        "opened": st.integers(0, 3),
        "max_runtime_s": st.none() | SECONDS,
    }
)
lacks = st.none() | st.builds(Reason, code=st.sampled_from(["HEAD_BUSY", "QUEUED_BEHIND"]))
offers = st.fixed_dictionaries(
    {
        name: st.builds(Offer, lack=lacks, load=st.sampled_from([0, 0.25, 0.5]), running=st.integers(0, 3))
        for name in "abcdefgh"
    }
)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001
cases = st.tuples(groups, views, demands, wishes, offers, moments)
Case = tuple[ClusterGroup, dict[str, ClusterView], Demand, dict[str, Any], dict[str, Offer], datetime]


def decided(case: Case) -> Decision:
    group, there, demand, wish, room, now = case
    return decide(asked_of(group, there, demand, now, **wish), room)


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


@settings(deadline=None)
@given(cases)
def test_each_member_is_told_of_once_with_one_reason_if_it_is_excluded(case: Case) -> None:
    decision = decided(case)
    assert sorted(one.cluster for one in decision.candidates) == sorted(one.cluster for one in case[0].members)
    for one in decision.candidates:
        assert one.eligible == (one.reason is None) == (one.rank is not None)
        assert not one.fits_now or one.eligible
    assert (decision.waiting is None) == (decision.chosen is not None)


@settings(deadline=None)
@given(cases)
def test_who_is_chosen_takes_work_has_room_and_is_first_of_the_best_open_tier_that_has(case: Case) -> None:
    group, there, demand, wish, room, now = case
    asked = asked_of(group, there, demand, now, **wish)
    choice, decision = chosen(asked, room), decided(case)
    by_name = {one.cluster: one for one in decision.candidates}
    open_now = [one for one in decision.candidates if one.eligible and one.tier in choice.open_tiers]
    able = [one for one in open_now if one.fits_now]
    if decision.chosen is None:
        assert not able
        return
    best = by_name[decision.chosen]
    member = next(one for one in group.members if one.cluster == decision.chosen)
    assert takes_work(member, there.get(member.cluster), demand)
    assert room[member.cluster].lack is None
    assert best.rank == min(one.rank for one in able if one.rank is not None)
    assert best.tier == min(one.tier for one in able) == decision.tier


@settings(deadline=None)
@given(cases)
def test_nobody_is_chosen_outside_its_window(case: Case) -> None:
    group, decision, now = case[0], decided(case), case[5]
    member = next((one for one in group.members if one.cluster == decision.chosen), None)
    if member is not None and group.policy.window_mode is WindowMode.RESTRICT:
        assert window_state(member.windows, group.timezone, now).is_open


@settings(deadline=None)
@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(case: Case, random: Any) -> None:
    group, there, demand, wish, room, now = case
    shuffled = random.sample(group.members, len(group.members))
    again = a_group(*shuffled, policy=group.policy, timezone=group.timezone, revised_at=NOW)
    views_again = dict(random.sample(sorted(there.items()), len(there)))
    assert decided((again, views_again, demand, wish, room, now)) == decided(case)


@settings(deadline=None)
@given(cases)
def test_what_was_stored_gives_the_same_decision_again(case: Case) -> None:
    group, there, demand, wish, room, now = case
    kept = [
        (TypeAdapter(kind), value)
        for kind, value in ((ClusterGroup, group), (dict[str, ClusterView], there), (Demand, demand))
    ]
    group, there, demand = (adapter.validate_json(adapter.dump_json(value)) for adapter, value in kept)
    before, again = decided(case).to_json(), decided((group, there, demand, wish, room, now)).to_json()
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(before)) == before


@settings(deadline=None)
@given(st.lists(windows, min_size=1, max_size=3).map(tuple), ZONES, moments)
def test_a_window_changes_when_it_says_and_not_before(some: tuple[Window, ...], zone: str, now: datetime) -> None:
    state = window_state(some, zone, now)
    ends = now + timedelta(days=3) if state.until is None else min(state.until, now + timedelta(days=3))
    for minutes in range(0, int((ends - now).total_seconds() // 60) + 1, 7):
        at = now + timedelta(minutes=minutes)
        assert at == ends or window_state(some, zone, at).is_open is state.is_open
    if state.until is not None:
        assert window_state(some, zone, state.until).is_open is not state.is_open
        before = state.until - timedelta(microseconds=1)
        assert before < now or window_state(some, zone, before).is_open is state.is_open
