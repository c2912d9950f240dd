"""What one more look at a cluster makes of its health (policy.md §3)."""

from dataclasses import replace
from datetime import datetime, timedelta

from cluster_groups.model.cluster import ProbeResult
from cluster_groups.model.health import Health, HealthStatus
from kernel.reasons import Reason

PROBE_EVERY_S = 10
MISSES_TO_UNHEALTHY = 3
PASSES_TO_HEALTHY = 3
PASSING_FOR = timedelta(seconds=60)
NO_RESULT_FOR = timedelta(seconds=40)
FIRST_PASS_WITHIN = timedelta(seconds=PROBE_EVERY_S * MISSES_TO_UNHEALTHY)
"""A new cluster is looked at more often, so its misses alone say little."""
FLAP_CHANGES = 3
FLAP_WINDOW = timedelta(minutes=10)
FLAP_HOLD = timedelta(seconds=300)
ALIVE_SHARE = 0.5


def judge(health: Health, result: ProbeResult | None, now: datetime, *, minimum_workers: int = 0) -> Health:
    """The verdict after `result`, or after a time without any. `minimum_workers` is the sum of the groups' minima."""
    footing = _without_results(health, now)
    if result is None:
        return footing
    counted = _count(footing, result, _failure_of(result, minimum_workers))
    judged = _change(counted, _status_after(counted, now), now)
    return replace(judged, since=health.since) if judged.status is health.status else judged


def _without_results(health: Health, now: datetime) -> Health:
    """UNKNOWN once results stayed away, whichever verdict it was before. Without a verdict there is no work anyway."""
    known = health.status in {HealthStatus.HEALTHY, HealthStatus.UNHEALTHY}
    if not known or now - (health.last_result_at or health.since) < NO_RESULT_FOR:
        return health
    return replace(
        health,
        status=HealthStatus.UNKNOWN,
        since=now,
        passes=0,
        misses=0,
        passing_since=None,
        failure=Reason(code="HEALTH_NO_RESULT", params={"seconds": int(NO_RESULT_FOR.total_seconds())}),
        before_unknown=health.status,
    )


def _failure_of(result: ProbeResult, minimum_workers: int) -> Reason | None:
    if result.failure is not None or result.nodes is None:
        return result.failure
    alive = sum(node.alive and not node.is_head for node in result.nodes)
    if alive >= minimum_workers * ALIVE_SHARE:
        return None
    return Reason(code="WORKERS_MISSING", params={"alive": alive, "wanted": minimum_workers})


def _count(health: Health, result: ProbeResult, failure: Reason | None) -> Health:
    passed = failure is None
    return replace(
        health,
        last_result_at=result.at,
        passes=health.passes + 1 if passed else 0,
        misses=0 if passed else health.misses + 1,
        passing_since=(health.passing_since or result.at) if passed else None,
        failure=failure,
    )


def _status_after(health: Health, now: datetime) -> HealthStatus:
    passed, missed = health.passes > 0, health.misses >= MISSES_TO_UNHEALTHY
    recovered = (
        health.passes >= PASSES_TO_HEALTHY
        and health.passing_since is not None
        and now - health.passing_since >= PASSING_FOR
    )
    match health.status:
        case HealthStatus.PENDING if passed:
            return HealthStatus.HEALTHY
        case HealthStatus.PENDING if missed and now - health.since >= FIRST_PASS_WITHIN:
            return HealthStatus.UNHEALTHY
        case HealthStatus.HEALTHY if missed:
            return HealthStatus.UNHEALTHY
        case HealthStatus.UNHEALTHY if recovered:
            return HealthStatus.HEALTHY
        case HealthStatus.UNKNOWN if passed and health.before_unknown is not None:
            return health.before_unknown
        case HealthStatus.UNKNOWN if missed:
            return HealthStatus.UNHEALTHY
        case HealthStatus.FLAPPING if now - health.since >= FLAP_HOLD:
            return HealthStatus.HEALTHY if recovered else HealthStatus.UNHEALTHY
    return health.status


def _change(health: Health, status: HealthStatus, now: datetime) -> Health:
    if status is health.status:
        return health
    changes = tuple(at for at in health.changes if now - at < FLAP_WINDOW)
    if {status, health.status} == {HealthStatus.HEALTHY, HealthStatus.UNHEALTHY}:
        changes = (*changes, now)
    if len(changes) >= FLAP_CHANGES:
        status, changes = HealthStatus.FLAPPING, ()
    return replace(health, status=status, since=now, changes=changes, before_unknown=None)
