"""Whether a run whose attempt has ended is tried again, and when."""

from datetime import timedelta
from typing import Any

import pytest

from rayjobs.decide.retry import (
    GANG_BACKOFF,
    PERMANENT,
    RETRY_BACKOFF,
    TRANSIENT,
    Again,
    Backoff,
    Ended,
    backing_off,
    decide_retry,
)
from rayjobs.model.job import Retry
from rayjobs.model.run import Condition, End, EndClass, EndCode
from tests.builders.runs import NOW, a_run

EVERY = ("platform", "environment", "placement", "lost", "user")


def after(end: End, **fields: Any) -> Again | None:
    """With attempts left, on everything, unless the test says otherwise."""
    defaults = {"run": "run_1", "epoch": 1, "tries": 0, "retry": Retry(max_attempts=3, on=EVERY)}
    return decide_retry(Ended(end=end, **defaults | fields), Backoff(), NOW)


def on(*classes: str) -> Retry:
    return Retry(max_attempts=3, on=classes)


def exited(code: int | None) -> End:
    return End(end_class=EndClass.USER, code=EndCode.EXIT_NONZERO, exit_code=code)


NODE_LOST = End(end_class=EndClass.LOST, code=EndCode.NODE_LOST)
GANG_TIMEOUT = End(end_class=EndClass.PLACEMENT, code=EndCode.GANG_TIMEOUT)
START_TIMEOUT = End(end_class=EndClass.PLACEMENT, code=EndCode.START_TIMEOUT)
RUNNER_FAILED = End(end_class=EndClass.PLATFORM, code=EndCode.RUNNER_FAILED, exit_code=232)


class TestTriedAgain:
    @pytest.mark.parametrize(
        "end",
        [
            NODE_LOST,
            RUNNER_FAILED,
            End(end_class=EndClass.ENVIRONMENT, code=EndCode.RUNTIME_ENV_FAILED),
            End(end_class=EndClass.PLACEMENT, code=EndCode.DRIVER_NOT_STARTED),
            exited(1),
        ],
    )
    def test_only_on_the_classes_the_job_names(self, end: End) -> None:
        again = after(end, retry=on(end.end_class))
        assert again is not None
        assert (again.counts, again.reason.code) == (True, RETRY_BACKOFF)
        assert again.reason.params["because"] == end.code
        assert after(end, retry=on(*(one for one in EVERY if one != end.end_class))) is None

    def test_only_so_many_times(self) -> None:
        assert after(NODE_LOST, tries=1) is not None
        assert after(NODE_LOST, tries=2) is None
        assert after(NODE_LOST, retry=Retry()) is None

    @pytest.mark.parametrize(
        ("end_class", "code"),
        [
            (EndClass.COMPLETED, EndCode.ALL_TASKS_DONE),
            (EndClass.STOPPED, EndCode.STOPPED_OUTSIDE),
            (EndClass.TIMEOUT, EndCode.MAX_RUNTIME),
            (EndClass.PLATFORM, EndCode.PACKAGE_MISSING),
            (EndClass.USER, EndCode.SUBMIT_REFUSED),
        ],
    )
    def test_never_after_these(self, end_class: EndClass, code: EndCode) -> None:
        assert after(End(end_class=end_class, code=code)) is None

    @pytest.mark.parametrize("end", [NODE_LOST, GANG_TIMEOUT, START_TIMEOUT, exited(143)])
    def test_a_stop_never_retries(self, end: End) -> None:
        assert after(end, is_stopping=True) is None


class TestExitCodes:
    @pytest.mark.parametrize("code", [*sorted(TRANSIENT), -9, -15])
    def test_transient_ones_are_the_platforms_or_the_users(self, code: int) -> None:
        assert after(exited(code), retry=on("platform")) is not None
        assert after(exited(code), retry=on("user")) is not None
        assert after(exited(code), retry=on("lost", "placement", "environment")) is None

    @pytest.mark.parametrize("code", [*sorted(PERMANENT), -4, -8])
    def test_permanent_ones_never(self, code: int) -> None:
        assert after(exited(code)) is None

    @pytest.mark.parametrize("code", [1, 2, 127, 128, 134, 139, 227, 255, -11, None])
    def test_unknown_ones_are_the_users(self, code: int | None) -> None:
        assert after(exited(code), retry=on("user")) is not None
        assert after(exited(code), retry=on("platform")) is None

    def test_codes_of_other_classes_are_not_the_users(self) -> None:
        """The runner's own lie where the table has permanent ones."""
        assert after(RUNNER_FAILED, retry=on("platform")) is not None


class TestGivenBack:
    @pytest.mark.parametrize("end", [GANG_TIMEOUT, START_TIMEOUT])
    def test_it_is_not_counted_and_has_no_end(self, end: End) -> None:
        again = after(end, retry=Retry(max_attempts=1, on=()), tries=99, epoch=500)
        assert again is not None
        assert (again.counts, again.reason.code) == (False, GANG_BACKOFF)


class TestBackOff:
    @pytest.mark.parametrize("end", [GANG_TIMEOUT, RUNNER_FAILED])
    def test_it_is_random_within_its_bounds_and_the_same_when_judged_again(self, end: End) -> None:
        pauses = set()
        for epoch in range(200):
            again = after(end, epoch=epoch)
            assert again is not None
            assert again.not_before is not None
            assert again == after(end, epoch=epoch)
            pauses.add((again.not_before - NOW).total_seconds())
        assert len(pauses) > 190
        assert 60 <= min(pauses) < 120
        assert 840 < max(pauses) <= 900

    def test_its_bounds_are_given(self) -> None:
        ended = Ended(run="run_1", epoch=1, end=GANG_TIMEOUT, tries=0, retry=Retry())
        again = decide_retry(ended, Backoff(least_s=1, most_s=1), NOW)
        assert again is not None
        assert again.not_before == NOW + timedelta(seconds=1)

    def test_a_lost_one_waits_only_until_it_is_confirmed_over(self) -> None:
        again = after(NODE_LOST)
        assert again is not None
        assert (again.not_before, again.reason.params["not_before"]) == (None, None)


class TestStillBackingOff:
    def test_it_waits_for_what_it_was_told_when_it_went_back(self) -> None:
        params = {"because": "GANG_TIMEOUT", "not_before": "2026-11-30T12:05:00Z"}
        condition = Condition(code=GANG_BACKOFF, owner="platform", params=params, since=NOW)
        reason = backing_off(a_run(condition=condition, not_before=NOW))
        assert (reason.code, reason.params) == (GANG_BACKOFF, params)

    def test_or_for_another_try_where_nobody_said(self) -> None:
        other = Condition(code="HEAD_BUSY", owner="platform", params={}, since=NOW)
        for condition in (None, other):
            reason = backing_off(a_run(condition=condition, not_before=NOW))
            assert (reason.code, reason.params["not_before"]) == (RETRY_BACKOFF, "2026-11-30T12:00:00Z")
