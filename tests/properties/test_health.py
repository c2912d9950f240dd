"""What holds of every history of looks at a cluster."""

import itertools
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.decide.health import after_failed_submits, judge
from cluster_groups.model.cluster import ProbeResult
from cluster_groups.model.health import FailedSubmit, Health, HealthStatus
from kernel.reasons import Reason
from tests.builders.clusters import NOW

MISS = Reason(code="NO_ANSWER")
looks = st.lists(st.tuples(st.sampled_from(".x !"), st.integers(1, 120)), max_size=200)
"""They pass, miss, give no result; at `!` three runs could not be sent, then it passes."""


def history(seen: list[tuple[str, int]]) -> list[Health]:
    health, now, verdicts = Health(since=NOW), NOW, []
    for look, seconds in seen:
        now += timedelta(seconds=seconds)
        if look == "!":
            failed = [FailedSubmit(at=now, attempt=f"{now}-{index}", why="UNREACHABLE") for index in range(3)]
            health = after_failed_submits(health, failed, now)
        result = None if look == " " else ProbeResult(at=now, failure=MISS if look == "x" else None)
        health = judge(health, result, now)
        verdicts.append(health)
    return verdicts


@given(looks)
def test_three_misses_in_a_row_never_leave_it_healthy(seen: list[tuple[str, int]]) -> None:
    verdicts = history(seen)
    for index in range(2, len(seen)):
        if "".join(look for look, _ in seen[index - 2 : index + 1]) == "xxx":
            assert verdicts[index].status is not HealthStatus.HEALTHY


@given(looks)
def test_it_becomes_healthy_only_by_a_pass(seen: list[tuple[str, int]]) -> None:
    before = HealthStatus.PENDING
    for (look, _), health in zip(seen, history(seen), strict=True):
        if health.status is HealthStatus.HEALTHY and before is not HealthStatus.HEALTHY:
            assert look in ".!"
        before = health.status


@given(looks)
def test_it_never_changes_between_the_verdicts_three_times_in_ten_minutes(seen: list[tuple[str, int]]) -> None:
    two = {HealthStatus.HEALTHY, HealthStatus.UNHEALTHY}
    verdicts = history(seen)
    changes = [new.since for old, new in itertools.pairwise(verdicts) if {old.status, new.status} == two]
    for first, third in zip(changes, changes[2:], strict=False):
        assert third - first >= timedelta(minutes=10)


@given(looks)
def test_since_is_when_the_status_last_changed(seen: list[tuple[str, int]]) -> None:
    verdicts = history(seen)
    for old, new in itertools.pairwise(verdicts):
        assert (old.since == new.since) == (old.status is new.status)
