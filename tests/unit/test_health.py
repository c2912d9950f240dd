"""policy.md §3, look by look."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from cluster_groups.decide.health import after_failed_submits, begun_anew, health_in, judge, list_is_due, unfit
from cluster_groups.model.cluster import ClusterState, ProbeResult
from cluster_groups.model.health import FailedSubmit, Health, HealthStatus
from kernel.reasons import Reason
from tests.builders.clusters import NOW, a_cluster, a_node

PENDING, HEALTHY, UNHEALTHY = HealthStatus.PENDING, HealthStatus.HEALTHY, HealthStatus.UNHEALTHY
UNKNOWN, FLAPPING = HealthStatus.UNKNOWN, HealthStatus.FLAPPING
MISS = Reason(code="NO_ANSWER")


class Watch:
    """A cluster looked at every 10 s: `.` passes, `x` misses, space is no result."""

    def __init__(self, every_s: float = 10) -> None:
        self.health = Health(since=NOW)
        self.now = NOW
        self.every = timedelta(seconds=every_s)

    def see(self, looks: str) -> list[HealthStatus]:
        return [self._look(look) for look in looks]

    def after(self, looks: str) -> HealthStatus:
        return self.see(looks)[-1]

    def fail(self, *attempts: str) -> HealthStatus:
        """These cannot be sent there now."""
        failed = [FailedSubmit(at=self.now, attempt=attempt, why="UNREACHABLE") for attempt in attempts]
        self.health = after_failed_submits(self.health, failed, self.now)
        return self.health.status

    def goes(self, before: ClusterState, state: ClusterState) -> HealthStatus:
        self.health = health_in(state, a_cluster(before, health=self.health), self.now)
        return self.health.status

    def restart(self, begin: ClusterState = ClusterState.FAILED) -> HealthStatus:
        """After its head died, or somebody stopped it."""
        way = [ClusterState.RUNNING, begin, ClusterState.STARTING, ClusterState.RUNNING]
        return [self.goes(*step) for step in pairwise(way)][-1]

    def _look(self, look: str) -> HealthStatus:
        self.now += self.every
        result = None if look == " " else ProbeResult(at=self.now, failure=MISS if look == "x" else None)
        self.health = judge(self.health, result, self.now)
        return self.health.status


class TestRecovery:
    """What a group's failback goes by (policy.md §2)."""

    def test_is_from_when_it_was_ill(self) -> None:
        watch = Watch()
        watch.see("...")
        assert watch.health.recovered_at is None
        watch.see("xxx")
        assert watch.health.recovered_at is None
        assert watch.after(".......") is HEALTHY
        assert watch.health.recovered_at == watch.now
        watch.see("...")
        assert watch.health.recovered_at == watch.now - 3 * watch.every

    def test_is_none_after_a_time_in_which_nobody_looked(self) -> None:
        watch = Watch()
        assert watch.see(".     .")[-2:] == [UNKNOWN, HEALTHY]
        assert watch.health.recovered_at is None


class TestBegunAnew:
    """What does not say how it is now is void; not that it was ill."""

    def test_a_head_that_died_was_ill(self) -> None:
        watch = Watch()
        watch.see("...")
        assert watch.restart() is PENDING
        assert watch.after(".") is HEALTHY
        assert watch.health.recovered_at == watch.now
        watch.see(".")
        assert (watch.health.was_ill, watch.health.recovered_at) == (False, watch.now - watch.every)

    def test_one_that_dies_again_and_again_flaps(self) -> None:
        watch = Watch()
        watch.see(".")
        watch.restart()
        watch.see(".")
        assert watch.restart() is FLAPPING
        assert set(watch.see("." * 29)) == {FLAPPING}
        assert watch.restart() is FLAPPING
        assert watch.see("." * 30)[-2:] == [FLAPPING, HEALTHY]

    def test_what_died_before_its_first_look_is_no_change(self) -> None:
        watch = Watch()
        watch.see(".")
        for _ in range(5):
            watch.restart()
        assert (watch.after("."), len(watch.health.changes)) == (HEALTHY, 2)

    def test_one_that_somebody_stops_returns_at_once(self) -> None:
        watch = Watch()
        watch.see("." + TestFlapping.DOWN_AND_UP)
        watch.restart()
        assert watch.restart(ClusterState.STOPPING) is PENDING
        assert watch.after(".") is HEALTHY
        assert (watch.health.recovered_at, watch.health.changes) == (None, ())

    @pytest.mark.parametrize(("looks", "recovers"), [("..", False), (".xxx", True), (".xxx    ", True)])
    def test_an_edit_heals_nothing(self, looks: str, *, recovers: bool) -> None:
        watch = Watch()
        watch.see(looks)
        watch.health = begun_anew(begun_anew(watch.health, watch.now), watch.now)
        assert watch.see("xx.") == [PENDING, PENDING, HEALTHY]
        assert watch.health.recovered_at == (watch.now if recovers else None)

    def test_an_edit_does_not_forget_when_it_recovered(self) -> None:
        watch = Watch()
        watch.see("." + TestFlapping.DOWN_AND_UP)
        watch.health = begun_anew(watch.health, watch.now)
        assert watch.after(".") is HEALTHY
        assert watch.health.recovered_at == watch.now - watch.every


class TestFirst:
    def test_pass_makes_it_healthy_at_once(self) -> None:
        assert Watch().see(".") == [HEALTHY]

    def test_misses_leave_it_pending_for_three_probes_of_time(self) -> None:
        assert Watch().see("xxx") == [PENDING, PENDING, UNHEALTHY]
        watch = Watch(every_s=1)
        assert set(watch.see("x" * 29)) == {PENDING}
        assert watch.after("x") is UNHEALTHY

    def test_no_result_leaves_it_pending(self) -> None:
        assert Watch().after(" " * 100) is PENDING


class TestUnhealthy:
    def test_after_three_misses_in_a_row(self) -> None:
        assert Watch().see(".xx.xxx") == [HEALTHY] * 6 + [UNHEALTHY]

    def test_healthy_again_after_three_passes_and_60_s(self) -> None:
        watch = Watch()
        watch.see(".xxx")
        assert watch.see("......") == [UNHEALTHY] * 6
        assert watch.after(".") is HEALTHY

    def test_seldom_looked_at_it_still_needs_three_passes(self) -> None:
        watch = Watch(every_s=35)
        watch.see(".xxx")
        assert watch.see("...") == [UNHEALTHY, UNHEALTHY, HEALTHY]

    def test_a_miss_begins_the_recovery_anew(self) -> None:
        watch = Watch()
        assert watch.after(".xxx......x......") is UNHEALTHY
        assert watch.after(".") is HEALTHY

    def test_says_why(self) -> None:
        watch = Watch()
        watch.see(".xxx")
        assert watch.health.failure == watch.health.because == MISS
        watch.see(".")
        assert (watch.health.failure, watch.health.because, watch.health.finding) == (None, MISS, MISS)
        watch.see("......")
        assert watch.health.finding is None


class TestUnknown:
    def test_after_40_s_without_result(self) -> None:
        assert Watch().see(".    ") == [HEALTHY] * 4 + [UNKNOWN]
        assert Watch().see(".xxx    ")[-2:] == [UNHEALTHY, UNKNOWN]

    def test_a_pass_brings_back_what_it_was(self) -> None:
        assert Watch().after(".    .") is HEALTHY
        watch = Watch()
        assert watch.after(".xxx    .") is UNHEALTHY
        assert watch.see("......") == [UNHEALTHY] * 5 + [HEALTHY]

    def test_a_miss_does_not(self) -> None:
        assert Watch().see(".    xxx")[-3:] == [UNKNOWN, UNKNOWN, UNHEALTHY]

    def test_a_late_result_counts_as_one_after_silence(self) -> None:
        watch = Watch()
        watch.see(".")
        since = watch.health.since
        watch.every = timedelta(hours=1)
        assert watch.see(".") == [HEALTHY]
        assert (watch.health.since, watch.health.passes) == (since, 1)
        assert watch.see("x") == [UNKNOWN]


class TestFlapping:
    DOWN_AND_UP = "xxx" + "." * 7

    def test_three_changes_in_ten_minutes_hold_it_out(self) -> None:
        watch = Watch()
        assert watch.after("." + self.DOWN_AND_UP) is HEALTHY
        assert watch.after("xxx") is FLAPPING
        assert set(watch.see("." * 29)) == {FLAPPING}
        assert watch.after(".") is HEALTHY

    def test_still_down_it_is_unhealthy_then(self) -> None:
        watch = Watch()
        watch.see("." + self.DOWN_AND_UP + "xxx")
        assert watch.after("x" * 30) is UNHEALTHY

    def test_a_silence_in_between_hides_no_change(self) -> None:
        watch = Watch()
        watch.see("." + self.DOWN_AND_UP)
        assert watch.after("    xxx") is FLAPPING

    def test_a_silence_alone_is_no_change(self) -> None:
        assert Watch().after(".    ." * 5) is HEALTHY

    def test_slow_changes_are_no_flapping(self) -> None:
        watch = Watch()
        watch.see("." + self.DOWN_AND_UP)
        watch.see("." * 60)
        assert watch.after("xxx") is UNHEALTHY


class TestFailedSubmits:
    def test_three_make_it_unhealthy_though_its_looks_pass(self) -> None:
        watch = Watch()
        watch.see(".")
        assert [watch.fail(attempt) for attempt in "abc"] == [HEALTHY, HEALTHY, UNHEALTHY]
        params = {"failures": 3, "minutes": 5, "last": "UNREACHABLE"}
        assert watch.health.finding == Reason(code="SUBMITS_FAIL", params=params)
        assert watch.health.since == watch.now

    def test_only_those_of_the_last_five_minutes_count(self) -> None:
        watch = Watch()
        watch.see(".")
        watch.fail("a", "b")
        watch.see("." * 29)
        assert watch.fail("c") is UNHEALTHY
        late = Watch()
        late.see(".")
        late.fail("a", "b")
        late.see("." * 30)
        assert late.fail("c") is HEALTHY

    def test_one_that_is_sent_again_and_again_counts_once(self) -> None:
        watch = Watch()
        watch.see(".")
        assert {watch.fail("a", "a", "b") for _ in range(10)} == {HEALTHY}

    def test_it_recovers_by_looks_as_ever(self) -> None:
        watch = Watch()
        watch.see(".....")
        watch.fail("a", "b", "c")
        assert watch.see("......") == [UNHEALTHY] * 6
        assert watch.health.finding is not None
        assert watch.after(".") is HEALTHY
        assert watch.fail("d", "e") is HEALTHY
        assert watch.fail("f") is FLAPPING

    @pytest.mark.parametrize("looks", ["", "xxx", ".xxx", ".    "])
    def test_of_one_that_takes_no_work_they_say_nothing(self, looks: str) -> None:
        watch = Watch()
        watch.see(looks)
        before = watch.health
        watch.fail("a", "b", "c")
        assert watch.health == before


class TestTheListOfJobs:
    @pytest.mark.parametrize(("after_s", "due"), [(0, False), (29, False), (30, True)])
    def test_is_asked_for_each_30_s(self, after_s: int, *, due: bool) -> None:
        seen = judge(Health(since=NOW), ProbeResult(at=NOW, is_open=False), NOW)
        assert list_is_due(seen, NOW + timedelta(seconds=after_s)) is due

    def test_is_part_of_the_first_look(self) -> None:
        assert list_is_due(Health(since=NOW), NOW)

    def test_is_asked_for_at_every_look_after_a_miss_so_that_it_can_miss_three_times(self) -> None:
        seen = judge(Health(since=NOW), ProbeResult(at=NOW, is_open=False), NOW)
        missed = judge(seen, ProbeResult(at=NOW, failure=MISS), NOW)
        assert list_is_due(missed, NOW)


class TestUnfit:
    @pytest.mark.parametrize("version", ["2.53.0", "2.9.3", "1.13", "2.53.1rc1"])
    def test_a_ray_before_2_54(self, version: str) -> None:
        reason = Reason(code="RAY_TOO_OLD", params={"version": version, "minimum": "2.54"})
        assert unfit(ProbeResult(at=NOW, ray_version=version), allow_open=True) == reason

    @pytest.mark.parametrize("version", ["2.54.0", "2.60.0", "2.100", "3.0.0.dev0"])
    def test_a_later_one_is_fine(self, version: str) -> None:
        assert unfit(ProbeResult(at=NOW, ray_version=version, is_open=False), allow_open=False) is None

    def test_an_old_ray_is_why_whatever_else_fails_there(self) -> None:
        result = ProbeResult(at=NOW, ray_version="2.9.0", failure=MISS)
        failure = judge(Health(since=NOW), result, NOW).failure
        assert failure is not None
        assert failure.code == "RAY_TOO_OLD"

    def test_a_job_api_that_answers_anybody_unless_that_is_allowed(self) -> None:
        result = ProbeResult(at=NOW, is_open=True)
        assert unfit(result, allow_open=False) == Reason(code="JOB_API_OPEN")
        assert unfit(result, allow_open=True) is None

    @pytest.mark.parametrize("seen", [{"ray_version": "2.53.0"}, {"is_open": True}])
    def test_never_becomes_healthy_and_does_not_stay_so(self, seen: dict[str, Any]) -> None:
        unfit_look, fine = ProbeResult(at=NOW, **seen), ProbeResult(at=NOW, is_open=False)
        never, healthy = Health(since=NOW), judge(Health(since=NOW), fine, NOW)
        for _ in range(3):
            never, healthy = judge(never, unfit_look, NOW), judge(healthy, unfit_look, NOW)
        assert (never.status, healthy.status) == (PENDING, UNHEALTHY)
        assert list_is_due(healthy, NOW)


class TestWorkers:
    def test_fewer_than_half_alive_is_a_miss(self) -> None:
        nodes = (a_node(is_head=True), a_node(), a_node(alive=False))
        result = ProbeResult(at=NOW, nodes=nodes)
        healthy = judge(Health(since=NOW), result, NOW, minimum_workers=2)
        assert healthy.status is HEALTHY
        missed = judge(healthy, result, NOW, minimum_workers=3)
        assert missed.misses == 1
        assert missed.failure == Reason(code="WORKERS_MISSING", params={"alive": 1, "wanted": 3})

    def test_a_failed_look_keeps_its_own_reason(self) -> None:
        result = replace(ProbeResult(at=NOW, nodes=()), failure=MISS)
        assert judge(Health(since=NOW), result, NOW, minimum_workers=3).failure == MISS
