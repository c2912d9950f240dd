"""policy.md §3, look by look."""

from dataclasses import replace
from datetime import timedelta

from cluster_groups.decide.health import judge
from cluster_groups.model.cluster import ProbeResult
from cluster_groups.model.health import Health, HealthStatus
from kernel.reasons import Reason
from tests.builders.clusters import NOW, a_node

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

    def _look(self, look: str) -> HealthStatus:
        self.now += self.every
        result = None if look == " " else ProbeResult(at=self.now, failure=MISS if look == "x" else None)
        self.health = judge(self.health, result, self.now)
        return self.health.status


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
        assert watch.health.failure == MISS
        watch.see(".")
        assert watch.health.failure is None


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

    def test_slow_changes_are_no_flapping(self) -> None:
        watch = Watch()
        watch.see("." + self.DOWN_AND_UP)
        watch.see("." * 60)
        assert watch.after("xxx") is UNHEALTHY


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
