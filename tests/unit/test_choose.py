"""Which member of a group takes a run, and why not the others: the filters and the record (policy.md §2, §6)."""

from datetime import timedelta
from typing import Any, ClassVar

import pytest

from cluster_groups.decide.decision import Decision, Outcome
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import Member, Policy, Rank, Window
from cluster_groups.model.health import HealthStatus
from cluster_groups.zones import TZDATA
from kernel.reasons import Owner, Reason
from kernel.resources import Resources
from tests.builders.clusters import NOW, a_group, a_view
from tests.builders.policies import because, choose

HEAD_BUSY = Reason(code="HEAD_BUSY", params={"drivers": 4, "limit": 4})
OPEN = Window(start="11:00", end="13:00")
SHUT = Window(start="13:00", end="14:00")
"""It is noon."""


class TestOrder:
    def test_the_first_with_room_gets_it(self) -> None:
        decision = choose(a_group("a", "b", "c"), *map(a_view, "abc"), lacks={"a": HEAD_BUSY})
        assert (decision.chosen, decision.outcome, decision.waiting) == ("b", Outcome.DISPATCHED, None)
        assert [(one.rank, one.fits_now) for one in decision.candidates] == [(1, False), (2, True), (3, True)]
        assert "b is the first in order of 2 in tier 0" in because(decision)
        assert "Passed over: a: HEAD_BUSY." in because(decision)

    def test_order_beats_the_place_in_the_list(self) -> None:
        group = a_group(Member(cluster="a", order=2), Member(cluster="b", order=1))
        assert choose(group, *map(a_view, "ab")).chosen == "b"


class TestFilters:
    LABELLED = Demand(resources=Resources(cpu=1), labels={"zone": "a"})
    GOOD: ClassVar[dict[str, Any]] = {"labels": {"zone": "a"}}

    @pytest.mark.parametrize(
        ("member", "view", "wish", "reason"),
        [
            ({"enabled": False, "cordoned": True}, {"state": ClusterState.STOPPED}, {}, "DISABLED"),
            ({}, {"on_demand": True, "resource_package": "p"}, {"packages": frozenset()}, "CLUSTER_MISSING"),
            ({}, {"resource_package": "p", "state": ClusterState.STOPPED}, {"packages": {"q"}}, "ACCESS_DENIED"),
            ({"cordoned": True}, {"state": ClusterState.STOPPED, "health": "UNKNOWN"}, {}, "CLUSTER_NOT_RUNNING"),
            ({}, {"health": HealthStatus.PENDING, "cordoned": True}, {}, "HEALTH_PENDING"),
            ({}, {"health": HealthStatus.UNHEALTHY}, {}, "HEALTH_UNHEALTHY"),
            ({}, {"health": HealthStatus.UNKNOWN}, {}, "HEALTH_UNKNOWN"),
            ({}, {"health": HealthStatus.FLAPPING}, {}, "HEALTH_FLAPPING"),
            ({}, {"cordoned": True, "labels": {"zone": "b"}}, {}, "CORDONED"),
            ({"cordoned": True}, GOOD, {}, "CORDONED"),
            ({}, {"labels": {"zone": "b"}, "nodes": ()}, {}, "REQUIREMENT_MISMATCH"),
            ({"windows": (SHUT,)}, {**GOOD, "nodes": ()}, {}, "NEVER_FITS"),
            ({"windows": (SHUT,), "max_running": 1}, GOOD, {}, "WINDOW_CLOSED"),
            ({"windows": (OPEN,), "max_running": 1}, GOOD, {"max_runtime_s": 3601}, "WINDOW_TOO_SHORT"),
            ({"windows": (OPEN,), "max_running": 1}, GOOD, {"max_runtime_s": 3600}, "MEMBER_LIMIT"),
            ({"windows": (OPEN,), "max_running": 2}, GOOD, {}, None),
            ({}, {**GOOD, "resource_package": "p"}, {"packages": {"p"}}, None),
            ({}, GOOD, {"packages": frozenset()}, None),
        ],
    )
    def test_the_first_that_fails_is_the_reason(
        self, member: dict[str, Any], view: dict[str, Any], wish: dict[str, Any], reason: str | None
    ) -> None:
        group = a_group(Member(cluster="a", **member), policy=Policy(fit_in_window=True))
        running = {"a": {"running": 1}}
        decision = choose(group, a_view("a", **view), demand=self.LABELLED, offers=running, **wish)
        (candidate,) = decision.candidates
        assert (candidate.reason, candidate.eligible) == (reason, reason is None)

    def test_a_member_that_is_gone(self) -> None:
        (candidate,) = choose(a_group("a")).candidates
        assert (candidate.reason, candidate.health, candidate.load) == ("CLUSTER_MISSING", None, None)

    def test_where_it_was_tried_only_if_there_is_nowhere_else(self) -> None:
        decision = choose(a_group("a", "b"), *map(a_view, "ab"), tried=frozenset("a"))
        assert (decision.chosen, decision.candidates[0].reason) == ("b", "ALREADY_TRIED")
        stopped = a_view("b", state=ClusterState.STOPPED)
        assert choose(a_group("a", "b"), a_view("a"), stopped, tried=frozenset("a")).chosen == "a"
        assert choose(a_group("a", "b"), *map(a_view, "ab"), tried=frozenset("ab")).chosen == "a"

    def test_a_full_member_that_was_not_tried_is_waited_for(self) -> None:
        decision = choose(a_group("a", "b"), *map(a_view, "ab"), tried=frozenset("a"), lacks={"b": HEAD_BUSY})
        assert (decision.chosen, decision.waiting) == (None, HEAD_BUSY)

    def test_windows_may_be_too_short_only_where_that_is_asked(self) -> None:
        member = Member(cluster="a", windows=(OPEN,))
        assert choose(a_group(member), a_view("a"), max_runtime_s=10**6).chosen == "a"


class TestWaiting:
    """policy.md §5."""

    def waiting(self, *views: ClusterView, demand: Demand = Demand(), **windows: Window) -> Reason:  # noqa: B008
        members = (
            Member(cluster=view.name, windows=(windows[view.name],) if view.name in windows else ()) for view in views
        )
        reason = choose(a_group(*members), *views, demand=demand).waiting
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

    def test_exhausted_quota_is_no_room(self) -> None:
        short = Reason(code="QUOTA_INSUFFICIENT", owner=Owner.QUOTA, params={"short": {"cpu": {"used": 8, "max": 8}}})
        assert choose(a_group("a"), a_view("a"), lacks={"a": short}).waiting == short
        assert choose(a_group("a", "b"), *map(a_view, "ab"), lacks={"a": short}).chosen == "b"

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

    def test_all_closed_says_when_the_first_opens(self) -> None:
        later = Window(start="15:00", end="16:00")
        reason = self.waiting(a_view("a"), a_view("b"), a=later, b=SHUT)
        assert (reason.code, reason.owner) == ("GROUP_WINDOW_CLOSED", Owner.USER)
        assert reason.params["next_open_at"] == "2026-11-30T13:00:00Z"
        assert reason.params["members"] == {"a": "WINDOW_CLOSED", "b": "WINDOW_CLOSED"}

    def test_what_only_waits_for_a_window_beats_what_may_never_come(self) -> None:
        reason = self.waiting(a_view("a", state=ClusterState.STOPPED), a_view("b"), b=SHUT)
        assert (reason.code, reason.params["next_open_at"]) == ("GROUP_WINDOW_CLOSED", "2026-11-30T13:00:00Z")

    def test_the_window_after_one_that_is_too_short(self) -> None:
        group = a_group(Member(cluster="a", windows=(OPEN,)), policy=Policy(fit_in_window=True))
        reason = choose(group, a_view("a"), max_runtime_s=7200).waiting
        assert reason is not None
        assert (reason.code, reason.params["next_open_at"]) == ("GROUP_WINDOW_CLOSED", "2026-12-01T11:00:00Z")
        assert reason.params["max_runtime_s"] == 7200

    def test_closed_for_ever_is_not_waited_for_where_others_may_come_back(self) -> None:
        over = Window(start="01:00", end="02:00", date_to=NOW.date() - timedelta(days=9))
        alone = self.waiting(a_view("a"), a=over)
        assert (alone.code, alone.params["next_open_at"]) == ("GROUP_WINDOW_CLOSED", None)
        ill = a_view("b", health=HealthStatus.UNHEALTHY)
        assert self.waiting(a_view("a"), ill, a=over).code == "GROUP_NO_HEALTHY_MEMBER"

    def test_members_that_have_enough(self) -> None:
        group = a_group(Member(cluster="a", max_running=2), Member(cluster="b", windows=(SHUT,)))
        reason = choose(group, *map(a_view, "ab"), offers={"a": {"running": 2}}).waiting
        assert reason is not None
        assert (reason.code, reason.owner) == ("MEMBER_LIMIT", Owner.QUOTA)
        assert reason.params.items() >= {"cluster": "a", "running": 2, "limit": 2}.items()


class TestRecord:
    def decision(self, **policy: Any) -> Decision:
        group = a_group("a", Member(cluster="b", windows=(OPEN,), order=1), policy=Policy(**policy))
        busy = {"b": {"load": 0.5, "lack": HEAD_BUSY}}
        return choose(group, a_view("a", cordoned=True), a_view("b"), offers=busy)

    def test_holds_what_people_ask(self) -> None:
        record = self.decision().to_json()
        candidates = record.pop("candidates")
        assert record == {
            "cluster_group": "g1",
            "revision": 1,
            "evaluated_at": "2026-11-30T12:00:00Z",
            "timezone": "UTC",
            "tzdata": TZDATA,
            "outcome": "waiting",
            "chosen": None,
            "tier": None,
            "because": [{"code": "NO_MEMBER_CAN", "params": {"members": {"a": "CORDONED", "b": "HEAD_BUSY"}}}],
            "reason": {"code": "HEAD_BUSY", "params": {"drivers": 4, "limit": 4}},
            "next_evaluation_at": "2026-11-30T12:00:15Z",
            "next_window_change_at": "2026-11-30T13:00:00Z",
        }
        assert candidates == [
            {
                "cluster": "a",
                "eligible": False,
                "reason": "CORDONED",
                "tier": 0,
                "window": {"state": "open", "id": None, "until": None},
                "health": "HEALTHY",
                "load": 0,
                "fits_now": False,
                "accelerator": None,
                "score": [],
                "rank": None,
                "facts": {"cluster": "a"},
            },
            {
                "cluster": "b",
                "eligible": True,
                "reason": None,
                "tier": 0,
                "window": {"state": "open", "id": 0, "until": "2026-11-30T13:00:00Z"},
                "health": "HEALTHY",
                "load": 0.5,
                "fits_now": False,
                "accelerator": None,
                "score": [0, 0, 1, 0.5, 1, "b"],
                "rank": 1,
                "facts": {"lacks": "HEAD_BUSY", "drivers": 4, "limit": 4},
            },
        ]

    def test_it_is_looked_at_again_when_a_window_changes(self) -> None:
        soon = a_group(Member(cluster="a", windows=(SHUT,)))
        now = NOW + timedelta(minutes=59, seconds=55)
        record = choose(soon, a_view("a"), now=now).to_json()
        assert record["next_evaluation_at"] == record["next_window_change_at"] == "2026-11-30T13:00:00Z"

    def test_weights_rank_nobody_while_nobody_has_room(self) -> None:
        waiting = self.decision(rank=Rank.WEIGHTED).to_json()
        assert waiting["candidates"][1]["score"] == [0, 0, 0.5, 1, "b"]
