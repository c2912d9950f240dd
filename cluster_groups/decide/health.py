"""What one more look at a cluster, or a run that could not be sent there, makes of its health (policy.md §3)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cluster_groups.model.cluster import Cluster, ClusterState, ProbeResult
from cluster_groups.model.health import FailedSubmit, Health, HealthStatus
from kernel.reasons import Reason

PROBE_EVERY_S = 10
LIST_EVERY = timedelta(seconds=30)
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
SUBMITS_TO_UNHEALTHY = 3
SUBMIT_WINDOW = timedelta(minutes=5)
MIN_RAY = (2, 54)
"""Before it, there was no token, or not all of the Jobs API asked for it (CVE-2026-27482)."""
_ILL = frozenset({HealthStatus.UNHEALTHY, HealthStatus.FLAPPING})
"""Not UNKNOWN: that nobody looked for a while, the service itself being away for one, says nothing of the cluster."""
_VERSION = re.compile(r"(\d+)\.(\d+)")


def judge(
    health: Health, result: ProbeResult | None, now: datetime, *, minimum_workers: int = 0, allow_open: bool = False
) -> Health:
    """The verdict after `result`, or after a time without any. `minimum_workers` is the sum of the groups' minima."""
    footing = _without_results(health, now)
    if result is None:
        return footing
    failure = unfit(result, allow_open=allow_open) or result.failure or _workers_missing(result, minimum_workers)
    counted = _count(footing, result, failure)
    judged = _change(counted, _status_after(counted, now), counted.failure or counted.because, now)
    return replace(judged, since=health.since) if judged.status is health.status else judged


def after_failed_submits(health: Health, failed: Sequence[FailedSubmit], now: datetime) -> Health:
    """The passive rule: looks may pass where runs fail. Recovery is by looks alone, as ever."""
    if health.status is not HealthStatus.HEALTHY:
        return health
    by_attempt = {one.attempt: one for one in (*health.failed_submits, *failed)}  # it is tried again and again
    recent = tuple(one for one in by_attempt.values() if now - one.at < SUBMIT_WINDOW)
    if len(recent) < SUBMITS_TO_UNHEALTHY:
        return replace(health, failed_submits=recent)
    params = {"failures": len(recent), "minutes": SUBMIT_WINDOW // timedelta(minutes=1), "last": recent[-1].why}
    down = replace(health, passes=0, misses=0, passing_since=None)
    return _change(down, HealthStatus.UNHEALTHY, Reason(code="SUBMITS_FAIL", params=params), now)


def begun_anew(health: Health, now: datetime) -> Health:
    """What was seen says nothing any more, but whoever was ill comes back as one who was."""
    was_ill = _latest_verdict(health) in _ILL
    return Health(since=now, changes=health.changes, recovered_at=health.recovered_at, was_ill=was_ill)


def health_in(state: ClusterState, before: Cluster, now: datetime) -> Health:
    """Of a cluster that comes to this state: one that fails is ill, and only one that is stopped may return at once."""
    if state is ClusterState.STOPPING:
        return Health(since=now)
    has_failed = state is ClusterState.FAILED and before.state is ClusterState.RUNNING
    health = before.health
    if has_failed and health.status is not HealthStatus.FLAPPING:
        health = _change(health, HealthStatus.UNHEALTHY, None, now)
    if health.status is HealthStatus.FLAPPING:
        return Health(since=now, status=HealthStatus.FLAPPING, recovered_at=health.recovered_at)
    return begun_anew(health, now)


def unfit(result: ProbeResult, *, allow_open: bool) -> Reason | None:
    """Why Muster sends nothing to a cluster, however well it is (requirements §4.5)."""
    version = _VERSION.match(result.ray_version or "")
    if version and (int(version[1]), int(version[2])) < MIN_RAY:
        params = {"version": result.ray_version, "minimum": ".".join(map(str, MIN_RAY))}
        return Reason(code="RAY_TOO_OLD", params=params)
    return Reason(code="JOB_API_OPEN") if result.is_open and not allow_open else None


def list_is_due(health: Health, now: datetime) -> bool:
    """Whether the next look is to list the jobs too: now and then, and at every look until it succeeds."""
    return health.listed_at is None or now - health.listed_at >= LIST_EVERY


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


def _workers_missing(result: ProbeResult, minimum_workers: int) -> Reason | None:
    if result.nodes is None:
        return None
    alive = sum(node.alive and not node.is_head for node in result.nodes)
    if alive >= minimum_workers * ALIVE_SHARE:
        return None
    return Reason(code="WORKERS_MISSING", params={"alive": alive, "wanted": minimum_workers})


def _count(health: Health, result: ProbeResult, failure: Reason | None) -> Health:
    passed = failure is None
    listed_at = health.listed_at if result.is_open is None else result.at
    return replace(
        health,
        last_result_at=result.at,
        passes=health.passes + 1 if passed else 0,
        misses=0 if passed else health.misses + 1,
        passing_since=(health.passing_since or result.at) if passed else None,
        failure=failure,
        listed_at=listed_at if passed else None,
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


def _change(health: Health, status: HealthStatus, because: Reason | None, now: datetime) -> Health:
    if status is health.status:
        return health
    changes = tuple(at for at in health.changes if now - at < FLAP_WINDOW)
    before = _latest_verdict(health)
    if {status, before} == {HealthStatus.HEALTHY, HealthStatus.UNHEALTHY}:
        changes = (*changes, now)
    if len(changes) >= FLAP_CHANGES:
        status, changes = HealthStatus.FLAPPING, ()
    return replace(
        health,
        status=status,
        since=now,
        changes=changes,
        because=None if status is HealthStatus.HEALTHY else because,
        recovered_at=now if status is HealthStatus.HEALTHY and before in _ILL else health.recovered_at,
        failed_submits=(),
        before_unknown=None,
        was_ill=False,
    )


def _latest_verdict(health: Health) -> HealthStatus:
    return HealthStatus.UNHEALTHY if health.was_ill else health.before_unknown or health.status
