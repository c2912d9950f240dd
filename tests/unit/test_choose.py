"""Which member of a group takes a run, and why not the others (policy.md §2, §5, §6)."""

from dataclasses import replace
from typing import Any

import pytest

from cluster_groups.decide.choose import Decision, Outcome, choose_member, match_cluster
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup, Member
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Owner, Reason
from kernel.resources import ANY_GPU, Resources
from tests.builders.clusters import NOW, a_group, a_node, a_view

ANYTHING = Demand()
HEAD_BUSY = Reason(code="HEAD_BUSY", params={"drivers": 4, "limit": 4})


def choose(
    group: ClusterGroup, *views: ClusterView, demand: Demand = ANYTHING, lacks: dict[str, Reason] | None = None
) -> Decision:
    by_name = {view.name: view for view in views}
    told = {name: (lacks or {}).get(name) for name in by_name}
    return choose_member(group, by_name, told, NOW, lambda view: match_cluster(view, demand))


class TestOrder:
    def test_the_first_with_room_gets_it(self) -> None:
        decision = choose(a_group("a", "b", "c"), *map(a_view, "abc"), lacks={"a": HEAD_BUSY})
        assert (decision.chosen, decision.outcome, decision.waiting) == ("b", Outcome.DISPATCHED, None)
        assert [(one.rank, one.fits_now) for one in decision.candidates] == [(1, False), (2, True), (3, True)]
        assert "Passed over: a (HEAD_BUSY)" in decision.because

    def test_order_beats_the_place_in_the_list(self) -> None:
        group = a_group(Member(cluster="a", order=2), Member(cluster="b", order=1))
        assert choose(group, *map(a_view, "ab")).chosen == "b"


class TestFilters:
    @pytest.mark.parametrize(
        ("member", "view", "reason"),
        [
            ({"enabled": False, "cordoned": True}, {"state": ClusterState.STOPPED}, "DISABLED"),
            ({}, {"on_demand": True, "state": ClusterState.STOPPED}, "CLUSTER_MISSING"),
            (
                {"cordoned": True},
                {"state": ClusterState.STOPPED, "health": HealthStatus.UNKNOWN},
                "CLUSTER_NOT_RUNNING",
            ),
            ({}, {"health": HealthStatus.PENDING, "cordoned": True}, "HEALTH_PENDING"),
            ({}, {"health": HealthStatus.UNHEALTHY}, "HEALTH_UNHEALTHY"),
            ({}, {"health": HealthStatus.UNKNOWN}, "HEALTH_UNKNOWN"),
            ({}, {"health": HealthStatus.FLAPPING}, "HEALTH_FLAPPING"),
            ({}, {"cordoned": True, "labels": {"zone": "b"}}, "CORDONED"),
            ({"cordoned": True}, {}, "CORDONED"),
            ({}, {"labels": {"zone": "b"}, "nodes": ()}, "REQUIREMENT_MISMATCH"),
            ({}, {"labels": {"zone": "a"}, "nodes": ()}, "NEVER_FITS"),
            ({}, {"labels": {"zone": "a"}}, None),
        ],
    )
    def test_the_first_that_fails_is_the_reason(
        self, member: dict[str, Any], view: dict[str, Any], reason: str | None
    ) -> None:
        demand = Demand(resources=Resources(cpu=1), labels={"zone": "a"})
        decision = choose(a_group(Member(cluster="a", **member)), a_view("a", **view), demand=demand)
        (candidate,) = decision.candidates
        assert (candidate.reason, candidate.eligible) == (reason, reason is None)

    def test_a_member_that_is_gone(self) -> None:
        assert choose(a_group("a")).candidates[0].reason == "CLUSTER_MISSING"


class TestWaiting:
    def waiting(self, *views: ClusterView, demand: Demand = ANYTHING) -> Reason:
        reason = choose(a_group(*(view.name for view in views)), *views, demand=demand).waiting
        assert reason is not None
        return reason

    def test_empty(self) -> None:
        assert self.waiting() == Reason(code="GROUP_EMPTY", owner=Owner.USER, params={"cluster_group": "g1"})

    def test_no_room_is_told_as_the_first_member_tells_it(self) -> None:
        decision = choose(
            a_group("a", "b", "c"),
            a_view("a", health=HealthStatus.UNHEALTHY),
            a_view("b"),
            a_view("c"),
            lacks={"b": HEAD_BUSY, "c": Reason(code="QUEUED_BEHIND")},
        )
        assert (decision.waiting, decision.outcome) == (HEAD_BUSY, Outcome.WAITING)

    def test_none_healthy_names_every_member(self) -> None:
        stopped = a_view("a", state=ClusterState.STOPPED)
        ill = a_view("b", health=HealthStatus.UNHEALTHY)
        reason = self.waiting(stopped, ill)
        assert (reason.code, reason.owner) == ("GROUP_NO_HEALTHY_MEMBER", Owner.USER)
        assert reason.params["members"] == {"a": "CLUSTER_NOT_RUNNING", "b": "HEALTH_UNHEALTHY"}
        assert self.waiting(ill).owner is Owner.PLATFORM

    def test_none_compatible(self) -> None:
        demand = Demand(gpu_types=("H100",))
        assert self.waiting(a_view("a"), a_view("b"), demand=demand).code == "GROUP_NO_COMPATIBLE_MEMBER"
        stopped = a_view("c", state=ClusterState.STOPPED)
        assert self.waiting(a_view("a"), stopped, demand=demand).code == "GROUP_NO_HEALTHY_MEMBER"


class TestMatch:
    GPU = a_view("a", nodes=(a_node(gpu={"H100": 4}), a_node(gpu={"A100": 2}), a_node(alive=False, gpu={"L4": 9})))

    @pytest.mark.parametrize(
        ("demand", "code"),
        [
            (Demand(), None),
            (Demand(gpu_types=("L4",)), "REQUIREMENT_MISMATCH"),
            (Demand(gpu_types=("L4", "A100")), None),
            (Demand(resources=Resources(gpu={"H100": 4}), gpu_types=("H100",)), None),
            (Demand(resources=Resources(gpu={"H100": 5}), gpu_types=("H100",)), "NEVER_FITS"),
            (Demand(resources=Resources(gpu={"A100": 3}), gpu_types=("A100", "H100")), None),
            (Demand(resources=Resources(gpu={ANY_GPU: 4})), None),
            (Demand(resources=Resources(gpu={ANY_GPU: 5})), "NEVER_FITS"),
            (Demand(resources=Resources(cpu=4, memory_gib=8)), None),
            (Demand(resources=Resources(cpu=4.5)), "NEVER_FITS"),
            (Demand(resources=Resources(memory_gib=9)), "NEVER_FITS"),
            (Demand(labels={"zone": "a"}), "REQUIREMENT_MISMATCH"),
            (Demand(ray_version="2.60"), None),
            (Demand(ray_version="2.6"), "REQUIREMENT_MISMATCH"),
            (Demand(python_version="3.11.7"), None),
            (Demand(python_version="3.12"), "REQUIREMENT_MISMATCH"),
        ],
    )
    def test_what_the_cluster_has(self, demand: Demand, code: str | None) -> None:
        reason = match_cluster(self.GPU, demand)
        assert (reason.code if reason else None) == code

    @pytest.mark.parametrize(
        ("demand", "code"),
        [
            (Demand(resources=Resources(cpu=8, memory_gib=16, gpu={"H100": 4}), gpu_types=("H100",)), None),
            (Demand(resources=Resources(gpu={"H100": 5}), gpu_types=("H100",)), "NEVER_FITS"),
            (Demand(resources=Resources(gpu={"A100": 2}), gpu_types=("A100",)), None),
            (Demand(resources=Resources(cpu=8.5)), "NEVER_FITS"),
        ],
    )
    def test_what_is_lost_for_the_moment_counts(self, demand: Demand, code: str | None) -> None:
        configured = Resources(cpu=8, memory_gib=16, gpu={"H100": 4})
        left = replace(self.GPU, nodes=(a_node(gpu={"A100": 2}),), maximum=configured)
        reason = match_cluster(left, demand)
        assert (reason.code if reason else None) == code

    def test_an_unknown_version_is_none(self) -> None:
        unknown = replace(self.GPU, ray_version=None)
        assert match_cluster(unknown, Demand(ray_version="2.60")) is not None
        assert match_cluster(unknown, Demand()) is None


class TestRecord:
    def test_holds_what_people_ask(self) -> None:
        record = choose(a_group("a", "b"), a_view("a", cordoned=True), a_view("b"), lacks={"b": HEAD_BUSY}).to_json()
        assert record == {
            "cluster_group": "g1",
            "revision": 1,
            "evaluated_at": "2026-11-30T12:00:00Z",
            "timezone": "UTC",
            "outcome": "waiting",
            "chosen": None,
            "because": "No member can take the run now: a (CORDONED), b (HEAD_BUSY).",
            "reason": {"code": "HEAD_BUSY", "params": {"drivers": 4, "limit": 4}},
            "next_evaluation_at": "2026-11-30T12:00:15Z",
            "candidates": [
                {
                    "cluster": "a",
                    "eligible": False,
                    "reason": "CORDONED",
                    "fits_now": False,
                    "rank": None,
                    "facts": {"cluster": "a"},
                },
                {
                    "cluster": "b",
                    "eligible": True,
                    "reason": None,
                    "fits_now": False,
                    "rank": 1,
                    "facts": {"lacks": "HEAD_BUSY", "drivers": 4, "limit": 4},
                },
            ],
        }
