"""What makes the policy of a cluster group acceptable, and what is warned of."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import TypeAdapter

from cluster_groups.check_policy import check_draft, policy_of, warnings_about
from cluster_groups.model.group import Member, Policy, PolicyDraft, PolicyRevision, Window, WindowMode
from kernel.errors import Problem, problem
from tests.builders.clusters import NOW, a_group

NIGHT = Window(start="22:00", end="06:00")
PAST = Window(start="22:00", end="06:00", date_to=date(2020, 1, 1))


def found(problems: list[Problem]) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in problems]


def member(**fields: Any) -> PolicyDraft:
    return PolicyDraft(members=(Member(cluster="a", **fields),))


def window(**fields: Any) -> PolicyDraft:
    return member(windows=(replace(NIGHT, **fields),))


class TestPolicies:
    @pytest.mark.parametrize(
        ("draft", "problem"),
        [
            (PolicyDraft(timezone="Mars/Olympus"), ("UNKNOWN_TIMEZONE", "/timezone")),
            (PolicyDraft(timezone="../etc"), ("UNKNOWN_TIMEZONE", "/timezone")),
            (PolicyDraft(timezone="America"), ("UNKNOWN_TIMEZONE", "/timezone")),
            (PolicyDraft(timezone=""), ("UNKNOWN_TIMEZONE", "/timezone")),
            (PolicyDraft(members=(Member(cluster="a"),) * 2), ("DUPLICATE_MEMBER", "/members/1/cluster")),
            (member(weight=-1), ("VALUE_OUT_OF_RANGE", "/members/0/weight")),
            (member(weight=1001), ("VALUE_OUT_OF_RANGE", "/members/0/weight")),
            (member(tier=10), ("VALUE_OUT_OF_RANGE", "/members/0/tier")),
            (member(max_running=0), ("VALUE_OUT_OF_RANGE", "/members/0/max_running")),
            (member(windows=(NIGHT,) * 51), ("TOO_MANY_WINDOWS", "/members/0/windows")),
            (window(timezone="Mars"), ("UNKNOWN_TIMEZONE", "/members/0/windows/0/timezone")),
            (window(start="24:00"), ("WINDOW_TIME_INVALID", "/members/0/windows/0/start")),
            (window(end="8:00"), ("WINDOW_TIME_INVALID", "/members/0/windows/0/end")),
            (window(end="08:60"), ("WINDOW_TIME_INVALID", "/members/0/windows/0/end")),
            (window(days=()), ("WINDOW_DAYS_INVALID", "/members/0/windows/0/days")),
            (window(days=(0, 1)), ("WINDOW_DAYS_INVALID", "/members/0/windows/0/days")),
            (window(days=(1, 1)), ("WINDOW_DAYS_INVALID", "/members/0/windows/0/days")),
            (
                window(date_from=date(2026, 2, 2), date_to=date(2026, 2, 1)),
                ("WINDOW_DATES_INVERTED", "/members/0/windows/0/date_to"),
            ),
            (
                window(days=(6, 7), date_from=date(2026, 11, 30), date_to=date(2026, 12, 4)),
                ("WINDOW_EMPTY", "/members/0/windows/0"),
            ),
            *(
                (PolicyDraft(policy={name: "other"}), ("POLICY_VALUE_NOT_AVAILABLE", f"/policy/{name}"))
                for name in (
                    "preset",
                    "rank",
                    "window_mode",
                    "gpu_match",
                    "failback",
                    "on_cluster_loss",
                    "on_window_end",
                )
            ),
            (PolicyDraft(policy={"spill_after_s": -1}), ("VALUE_OUT_OF_RANGE", "/policy/spill_after_s")),
            (PolicyDraft(policy={"failback_stable_s": -1}), ("VALUE_OUT_OF_RANGE", "/policy/failback_stable_s")),
            (
                PolicyDraft(policy={"on_cluster_loss": "redispatch", "lost_timeout_s": 689}),
                ("LOST_TIMEOUT_TOO_SHORT", "/policy/lost_timeout_s"),
            ),
            (PolicyDraft(policy={"tier": 1}), ("UNKNOWN_FIELD", "/policy/tier")),
            (PolicyDraft(policy={"lost_timeout_s": 9}), ("VALUE_OUT_OF_RANGE", "/policy/lost_timeout_s")),
            (PolicyDraft(policy={"max_wait_s": 0}), ("VALUE_OUT_OF_RANGE", "/policy/max_wait_s")),
            (PolicyDraft(comment="x" * 2001), ("TEXT_TOO_LONG", "/comment")),
        ],
    )
    def test_each_rule_has_its_code_and_place(self, draft: PolicyDraft, problem: tuple[str, str]) -> None:
        assert found(check_draft(draft)) == [problem]

    def test_at_most_fifty_members(self) -> None:
        members = tuple(Member(cluster=f"c{index}") for index in range(51))
        assert check_draft(PolicyDraft(members=members[:50])) == []
        assert found(check_draft(PolicyDraft(members=members))) == [("TOO_MANY_MEMBERS", "/members")]

    def test_what_is_left_out_is_filled_in(self) -> None:
        assert policy_of({}) == policy_of({"preset": "failover", "rank": None}) == Policy()
        assert policy_of({"lost_timeout_s": 60, "max_wait_s": None}) == Policy(lost_timeout_s=60)

    def test_what_is_fine(self) -> None:
        assert check_draft(PolicyDraft(timezone="Asia/Shanghai")) == []
        assert check_draft(window(date_from=date(2026, 2, 1), date_to=date(2026, 2, 1), end="22:00")) == []
        lossy = PolicyDraft(policy={"on_cluster_loss": "redispatch", "lost_timeout_s": 690})
        assert check_draft(lossy) == []
        assert found(check_draft(lossy, lease_ttl_s=601)) == [("LOST_TIMEOUT_TOO_SHORT", "/policy/lost_timeout_s")]

    @pytest.mark.parametrize(
        ("members", "mode", "never"),
        [
            ((Member(cluster="a", enabled=False),), WindowMode.RESTRICT, {"a": "DISABLED"}),
            (
                (Member(cluster="a", cordoned=True), Member(cluster="b", windows=(PAST,))),
                WindowMode.RESTRICT,
                {"a": "CORDONED", "b": "WINDOW_CLOSED"},
            ),
            ((Member(cluster="a", windows=(PAST,)),), WindowMode.PREFER, None),
            ((Member(cluster="a", windows=(PAST, NIGHT)),), WindowMode.RESTRICT, None),
            ((Member(cluster="a", enabled=False), Member(cluster="b")), WindowMode.RESTRICT, None),
        ],
    )
    def test_warns_of_a_policy_that_chooses_nobody(
        self, members: tuple[Member, ...], mode: WindowMode, never: dict[str, str] | None
    ) -> None:
        group = a_group(*members, policy=Policy(window_mode=mode))
        told = [(one.code, one.pointer, one.params["members"]) for one in warnings_about(group, "g1", NOW)]
        assert told == ([] if never is None else [("POLICY_NEVER_CHOOSES", "/members", never)])

    def test_warns_of_a_group_without_members(self) -> None:
        told = problem("GROUP_EMPTY", "/members", cluster_group="g1")
        assert warnings_about(a_group(policy=Policy(window_mode=WindowMode.PREFER)), "g1", NOW) == [told]

    def test_revisions_of_before_are_read(self) -> None:
        """As they were stored when members had no windows and policies no tiers."""
        members = [{"cluster": "a", "enabled": True, "cordoned": False, "order": 0}]
        policy = {"preset": "failover", "rank": "ordered", "lost_timeout_s": 60, "max_wait_s": None}
        read = TypeAdapter(PolicyRevision).validate_python(
            {
                "revision": 1, "timezone": "UTC", "members": members, "policy": policy, "comment": "",
                "created_at": NOW, "created_by": "ops",
            }
        )  # fmt: skip
        assert (read.members, read.policy) == ((Member(cluster="a"),), Policy(lost_timeout_s=60))
