"""Tiers, spilling, coming back, and who is first in a tier (policy.md §2, 3 to 7)."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from cluster_groups.check_policy import policy_of
from cluster_groups.decide.members import ALL_TIERS, opened_tiers
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import Demand
from cluster_groups.model.group import Failback, GpuMatch, Member, Policy, Rank, Window, WindowMode
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Reason
from kernel.resources import Resources
from tests.builders.clusters import NOW, a_group, a_node, a_view
from tests.builders.policies import because, choose

BUSY = Reason(code="HEAD_BUSY")
PAIR = (Member(cluster="a"), Member(cluster="b", tier=1))
SHUT = Window(start="13:00", end="14:00")


def ago(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


class TestTiers:
    def test_the_lowest_with_an_eligible_member(self) -> None:
        ill = a_view("a", health=HealthStatus.UNHEALTHY)
        assert choose(a_group(*PAIR), *map(a_view, "ab")).chosen == "a"
        decision = choose(a_group(*PAIR), ill, a_view("b"))
        assert (decision.chosen, decision.tier) == ("b", 1)

    def test_it_waits_for_room_in_its_tier(self) -> None:
        decision = choose(a_group(*PAIR), *map(a_view, "ab"), lacks={"a": BUSY})
        assert (decision.chosen, decision.waiting) == (None, BUSY)
        assert "Tier 1 opens to it when it has waited 300 s for room." in because(decision)

    def test_the_next_opens_when_it_waited_long_enough(self) -> None:
        decision = choose(a_group(*PAIR), *map(a_view, "ab"), lacks={"a": BUSY}, opened=1)
        assert (decision.chosen, decision.tier) == ("b", 1)
        assert "Tier 0 had no room for 300 s, so tier 1 is open." in because(decision)

    def test_room_in_the_best_tier_comes_first_all_the_same(self) -> None:
        assert choose(a_group(*PAIR), *map(a_view, "ab"), opened=1).chosen == "a"

    def test_one_more_opens_each_time(self) -> None:
        three = a_group(*PAIR, Member(cluster="c", tier=7))
        full = {"a": BUSY, "b": BUSY}
        assert choose(three, *map(a_view, "abc"), lacks=full, opened=1).chosen is None
        third = choose(three, *map(a_view, "abc"), lacks=full, opened=2)
        assert third.chosen == "c"
        assert "Tier 0 had no room for 600 s, so tier 7 is open." in because(third)

    @pytest.mark.parametrize(
        ("spill_after_s", "since", "opened"),
        [(300, None, 0), (300, 299, 0), (300, 300, 1), (300, 900, 3), (300, 10**7, ALL_TIERS), (0, None, ALL_TIERS)],
    )
    def test_how_many_are_open(self, spill_after_s: int, since: float | None, opened: int) -> None:
        policy = Policy(spill_after_s=spill_after_s)
        assert opened_tiers(policy, None if since is None else ago(since), NOW) == opened

    def test_a_closed_member_is_one_tier_later_where_windows_are_only_preferred(self) -> None:
        members = (Member(cluster="a", windows=(SHUT,)), Member(cluster="b", order=1))
        prefer = a_group(*members, policy=Policy(window_mode=WindowMode.PREFER))
        decision = choose(prefer, *map(a_view, "ab"))
        assert (decision.chosen, [one.tier for one in decision.candidates]) == ("b", [1, 0])
        alone = choose(prefer, a_view("a"), a_view("b", state=ClusterState.STOPPED))
        assert (alone.chosen, alone.tier) == ("a", 1)
        assert choose(a_group(*members), *map(a_view, "ab")).candidates[0].reason == "WINDOW_CLOSED"

    def test_windows_of_several_members_overlap(self) -> None:
        both = (Window(start="11:00", end="13:00"),)
        members = (Member(cluster="a", windows=both, order=1), Member(cluster="b", windows=both))
        decision = choose(a_group(*members), *map(a_view, "ab"))
        assert (decision.chosen, [one.eligible for one in decision.candidates]) == ("b", [True, True])


class TestFailback:
    def test_a_tier_that_was_left_returns_when_it_is_stable(self) -> None:
        back = a_view("a", recovered_at=ago(599))
        decision = choose(a_group(*PAIR), back, a_view("b"))
        assert (decision.chosen, decision.candidates[0].reason) == ("b", "FAILBACK_PENDING")
        assert decision.candidates[0].facts["until"] == "2026-11-30T12:00:01Z"
        assert decision.next_change_at == NOW + timedelta(seconds=1)
        assert choose(a_group(*PAIR), a_view("a", recovered_at=ago(600)), a_view("b")).chosen == "a"

    def test_it_is_used_while_there_is_no_other(self) -> None:
        back, ill = a_view("a", recovered_at=ago(1)), a_view("b", health=HealthStatus.UNHEALTHY)
        assert choose(a_group(*PAIR), back, ill).chosen == "a"
        assert choose(a_group("a"), back).chosen == "a"

    def test_a_tier_is_not_left_as_long_as_one_of_it_is_well(self) -> None:
        group = a_group(*PAIR, Member(cluster="c"))
        assert choose(group, a_view("a", recovered_at=ago(1)), a_view("b"), a_view("c")).chosen == "a"

    def test_a_full_standby_is_waited_for(self) -> None:
        back = a_view("a", recovered_at=ago(1))
        assert choose(a_group(*PAIR), back, a_view("b"), lacks={"b": BUSY}).waiting == BUSY

    @pytest.mark.parametrize("failback", Failback)
    def test_a_standby_that_was_ill_is_there_to_spill_to(self, failback: Failback) -> None:
        group = a_group(*PAIR, policy=Policy(failback=failback), revised_at=ago(10**7))
        back = a_view("b", recovered_at=ago(1))
        assert choose(group, a_view("a"), back, lacks={"a": BUSY}, opened=1).chosen == "b"
        assert choose(group, a_view("a"), back, lacks={"a": BUSY}).chosen is None

    def test_one_that_was_only_stopped_by_a_person_returns_at_once(self) -> None:
        stopped = a_view("a", state=ClusterState.STOPPED)
        assert choose(a_group(*PAIR), stopped, a_view("b")).chosen == "b"
        assert choose(a_group(*PAIR), a_view("a", recovered_at=None), a_view("b")).chosen == "a"

    def test_by_hand(self) -> None:
        policy, back = Policy(failback=Failback.MANUAL), a_view("a", recovered_at=ago(10**6))
        left = a_group(*PAIR, policy=policy, revised_at=ago(10**7))
        decision = choose(left, back, a_view("b"))
        assert (decision.chosen, decision.candidates[0].facts["until"]) == ("b", None)
        assert choose(a_group(*PAIR, policy=policy, revised_at=ago(10)), back, a_view("b")).chosen == "a"


class TestRank:
    THREE = (Member(cluster="a"), Member(cluster="b", order=1), Member(cluster="c", order=2))

    def test_the_least_loaded(self) -> None:
        group = a_group(*self.THREE, policy=Policy(rank=Rank.LEAST_LOADED))
        loads = {"a": {"load": 0.5}, "b": {"load": 0.25}, "c": {"load": 0.25}}
        decision = choose(group, *map(a_view, "abc"), offers=loads)
        assert (decision.chosen, [one.rank for one in decision.candidates]) == ("b", [3, 1, 2])
        assert "b is the least loaded of 3" in because(decision)

    def test_of_equally_loaded_ones_the_one_with_fewer_drivers(self) -> None:
        group = a_group(*self.THREE, policy=Policy(rank=Rank.LEAST_LOADED))
        drivers = {"a": {"drivers": 0.2}, "b": {"drivers": 0.1}, "c": {"drivers": 0.1}}
        assert choose(group, *map(a_view, "abc"), offers=drivers).chosen == "b"

    def test_ties_of_order_go_by_load_and_then_by_name(self) -> None:
        tied = a_group(Member(cluster="b"), Member(cluster="a"), Member(cluster="c"))
        assert choose(tied, *map(a_view, "abc")).chosen == "a"
        assert choose(tied, *map(a_view, "abc"), offers={"a": {"load": 0.1}, "b": {"load": 0.1}}).chosen == "c"

    def test_by_weight_each_gets_its_share_and_each_run_the_same_again(self) -> None:
        weights = {"a": 100, "b": 300, "c": 0}
        members = (Member(cluster=name, weight=weight) for name, weight in weights.items())
        group, views = a_group(*members, policy=Policy(rank=Rank.WEIGHTED)), list(map(a_view, "abc"))
        drawn = [choose(group, *views, run=f"run_{number}").chosen for number in range(2000)]
        counts = Counter(drawn)
        assert counts.keys() == {"a", "b"}
        assert 0.21 < counts["a"] / 2000 < 0.29
        assert drawn[:50] == [choose(group, *reversed(views), run=f"run_{number}").chosen for number in range(50)]

    def test_weight_nought_is_taken_when_there_is_no_other(self) -> None:
        members = (Member(cluster="a", weight=0), Member(cluster="b"))
        group = a_group(*members, policy=Policy(rank=Rank.WEIGHTED))
        assert choose(group, *map(a_view, "ab"), lacks={"b": BUSY}).chosen == "a"

    def test_a_member_that_goes_moves_only_its_own_runs(self) -> None:
        policy = Policy(rank=Rank.WEIGHTED)
        three, two = a_group(*self.THREE, policy=policy), a_group(*self.THREE[:2], policy=policy)
        for number in range(200):
            before = choose(three, *map(a_view, "abc"), run=f"run_{number}").chosen
            assert before == "c" or choose(two, *map(a_view, "ab"), run=f"run_{number}").chosen == before


class TestAccelerators:
    """`a` has A100s and `b` H100s, and `a` is first in order."""

    VIEWS = (a_view("a", nodes=(a_node(gpu={"A100": 2}),)), a_view("b", nodes=(a_node(gpu={"H100": 2}),)))
    DEMAND = Demand(resources=Resources(gpu={"H100": 1}), gpu_types=("H100", "A100"))

    def test_the_jobs_order_comes_first_where_the_policy_says_so(self) -> None:
        ordered = a_group("a", "b", policy=Policy(gpu_match=GpuMatch.ORDERED))
        decision = choose(ordered, *self.VIEWS, demand=self.DEMAND)
        assert (decision.chosen, [one.accelerator for one in decision.candidates]) == ("b", ["A100", "H100"])
        assert "b is the first in order of 1 in tier 0" in because(decision)
        assert "It gets H100 there, the best type that it can get." in because(decision)
        assert choose(a_group("a", "b"), *self.VIEWS, demand=self.DEMAND).chosen == "a"

    def test_it_falls_back_to_the_next_type(self) -> None:
        ordered = a_group("a", "b", policy=Policy(gpu_match=GpuMatch.ORDERED))
        assert choose(ordered, *self.VIEWS, demand=self.DEMAND, lacks={"b": BUSY}).chosen == "a"

    def test_what_it_would_get_now_counts_and_not_what_there_is(self) -> None:
        ordered = a_group("a", "b", policy=Policy(gpu_match=GpuMatch.ORDERED))
        both = a_view("a", nodes=(a_node(gpu={"A100": 2}), a_node(gpu={"H100": 2})))
        got = {"a": {"accelerator": "A100"}}
        assert choose(ordered, both, self.VIEWS[1], demand=self.DEMAND, offers=got).chosen == "b"


class TestPresets:
    @pytest.mark.parametrize(
        ("preset", "fields"),
        [
            ("failover", {"rank": "ordered", "failback": "auto"}),
            ("off_peak", {"rank": "least_loaded", "window_mode": "restrict", "spill_after_s": 0}),
            ("hetero_gpu", {"rank": "least_loaded", "gpu_match": "ordered"}),
            ("random", {"rank": "weighted"}),
            ("custom", {}),
        ],
    )
    def test_fill_what_was_not_given(self, preset: str, fields: dict[str, Any]) -> None:
        assert policy_of({"preset": preset}) == policy_of({"preset": preset, **fields})
        given = {"spill_after_s": 7, "rank": "ordered"}
        assert policy_of({"preset": preset, **given}) == policy_of({"preset": preset, **fields, **given})
