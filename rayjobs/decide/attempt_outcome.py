"""What follows for an attempt, and for its run, from what came of an action."""

from dataclasses import replace
from datetime import datetime, timedelta

from cluster_groups.model.cluster import ClusterKind, ClusterState
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.health import HealthStatus
from rayjobs.decide.attempt import (
    COLLECT_PATIENCE_S,
    LATE_POST_S,
    Action,
    Change,
    Do,
    Problem,
    Seen,
    as_of,
    is_about_the_request,
    lost_at,
)
from rayjobs.decide.retry import Again, Backoff, Ended, decide_retry
from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.gateway.status import GangSight, judge_end
from rayjobs.model.run import AttemptState, End, EndClass, EndCode, RunState
from rayjobs.snapshot import AttemptView

DEFAULT_BACKOFF = Backoff()
CONTENT_REFUSED = frozenset({400, 413, 422})
"""Statuses that speak of what was sent; other refusals are no fault of the user's."""


def advance(view: AttemptView, action: Action, seen: Seen, now: datetime, backoff: Backoff = DEFAULT_BACKOFF) -> Change:
    """`backoff` bounds the pause before another try."""
    change = _advance(as_of(view, now), action, seen, now)
    again = None if change.end is None else decide_retry(_ended(view, change.end), backoff, now)
    if again is None:
        return change
    reason = replace(again.reason, params={**again.reason.params, **_how_often(view, again)})
    return replace(change, run_state=RunState.WAITING, again=replace(again, reason=reason))


def _how_often(view: AttemptView, again: Again) -> dict[str, int]:
    if again.counts:
        return {"attempt": view.tries + 1, "of": view.retry.max_attempts}
    return {"tries": view.epoch - view.tries}


def _ended(view: AttemptView, end: End) -> Ended:
    return Ended(
        run=view.run_id,
        epoch=view.epoch,
        end=end,
        tries=view.tries,
        retry=view.retry,
        on_cluster_loss=view.on_cluster_loss,
        is_fenced=view.lease_ttl_s is not None or view.retry_safe,
        is_stopping=view.stop_code is not None,
    )


def _advance(view: AttemptView, action: Action, seen: Seen, now: datetime) -> Change:
    if action.do is Do.PROCEED:
        return _proceed(view, action)
    if seen.problem is not None:
        return _after_problem(view, action, seen, now)
    if action.do is Do.POST:
        return Change(state=AttemptState.PENDING, posted=True, found_again=view.lost_since is not None)
    if action.do is Do.STOP and view.state is not AttemptState.STOPPING:
        return Change(state=AttemptState.STOPPING)
    if action.do in {Do.LOOK, Do.STOP}:
        return _after_look(view, seen, now)
    if action.do is Do.COLLECT:
        return Change(state=AttemptState.RELEASING) if seen.done else Change()
    return _after_release(view, seen) if action.do is Do.RELEASE else Change()


def _proceed(view: AttemptView, action: Action) -> Change:
    over = action.end is not None and view.end is None
    return Change(
        state=action.to,
        end=action.end if over else None,
        run_state=action.end.run_state if action.end is not None and over else None,
    )


def _over(end: End, to: AttemptState) -> Change:
    return Change(state=to, end=end, run_state=end.run_state)


def _after_problem(view: AttemptView, action: Action, seen: Seen, now: datetime) -> Change:
    if seen.end is not None:
        return _over(seen.end, AttemptState.RELEASING)
    if action.do is Do.POST and _is_refusal(view, seen, now):
        blame = EndClass.USER if seen.status in CONTENT_REFUSED else EndClass.PLATFORM
        end = End(end_class=blame, code=EndCode.SUBMIT_REFUSED, params={"message": seen.text[-2000:]})
        return _over(end, AttemptState.RELEASING)
    if action.do is Do.COLLECT:
        waited = (now - view.state_since).total_seconds() > COLLECT_PATIENCE_S
        if waited or view.cluster_is_gone:
            return Change(state=AttemptState.RELEASING, close_log="CLUSTER_GONE")
        return Change()
    if action.do is Do.RELEASE:
        return Change()
    if _is_taken_away(view.cluster):
        return Change()  # that it is gone will be told
    posted = action.do is Do.POST
    if view.lost_since is None:
        return Change(lost_since=now, posted=posted)
    is_unknown = view.cluster is not None and view.cluster.health is HealthStatus.UNKNOWN  # policy.md §3
    if (is_unknown and not view.is_let_go) or now < lost_at(view, view.lost_since):
        return Change(posted=posted)
    return _over(_given_up(view, view.lost_since), AttemptState.COLLECTING)


def _is_taken_away(cluster: ClusterView | None) -> bool:
    """By its backend. Of somebody else's cluster nothing is: it is only forgotten, when its runs are over."""
    going = {ClusterState.STOPPING, ClusterState.DELETING}
    return cluster is not None and cluster.kind is ClusterKind.MANAGED and cluster.state in going


def _given_up(view: AttemptView, since: datetime) -> End:
    if view.is_let_go and view.stop_code is not None:
        return End(end_class=EndClass.STOPPED, code=view.stop_code)
    lost = {"lost_timeout_s": view.lost_timeout_s, "since": since.isoformat()}
    return End(end_class=EndClass.LOST, code=EndCode.CLUSTER_LOST, params=lost)


def _is_refusal(view: AttemptView, seen: Seen, now: datetime) -> bool:
    """A 5xx may come after the job was accepted: sent again, Ray says whether it has it.

    A lasting one is a no where it is about what was sent; else the head is ill, and counts as one that is silent.
    """
    if seen.problem is not Problem.REFUSED:
        return False
    lasts = (now - view.state_since).total_seconds() > LATE_POST_S
    return seen.status < 500 or (lasts and is_about_the_request(seen.text))


def _after_look(view: AttemptView, seen: Seen, now: datetime) -> Change:
    job, again = seen.job, view.lost_since is not None
    if job is None:
        return _after_unknown(view, now)
    end = judge_end(
        job,
        stop_code=_stop_code(view, job),
        time_is_up=_time_is_up(view, now),
        gang=_gang(view, seen),
        has_lease=view.lease_ttl_s is not None,
    )
    if end is not None:
        return Change(
            state=AttemptState.COLLECTING,
            end=end,
            ended_at=_ended_at(view, job, now),
            run_state=end.run_state,
            driver_address=job.driver_address,
            found_again=again,
            news=seen.news,
        )
    if view.state is AttemptState.POSTING:
        return Change(state=AttemptState.PENDING, found_again=again)
    if view.state is AttemptState.PENDING and job.status is RayStatus.RUNNING:
        return _driver_runs(view, job, found_again=again)
    if view.state is AttemptState.PLACING and seen.news is not None and seen.news.allocated_at is not None:
        placed = Change(state=AttemptState.RUNNING, run_state=RunState.RUNNING)
        return replace(placed, found_again=again, news=seen.news)
    return Change(found_again=again, news=seen.news)


def _stop_code(view: AttemptView, job: RayJob) -> EndCode | None:
    """What had ended by itself before its window closed was not stopped by that, whenever somebody looks."""
    closed = view.window_ends_at if view.stop_code is EndCode.WINDOW_ENDED else None
    return None if closed and job.ended_at and job.ended_at < closed else view.stop_code


def _ended_at(view: AttemptView, job: RayJob, now: datetime) -> datetime | None:
    """The head's word, as far as it agrees with what was seen here: its clock may differ from ours."""
    began = view.started_at or view.posted_at or view.created_at
    return None if job.ended_at is None else min(max(job.ended_at, began), now)


def _driver_runs(view: AttemptView, job: RayJob, *, found_again: bool) -> Change:
    """A plain job runs now; the driver of a gang asks for places first."""
    change = Change(driver_address=job.driver_address, found_again=found_again)
    if view.is_gang:
        return replace(change, state=AttemptState.PLACING)
    return replace(change, state=AttemptState.RUNNING, run_state=RunState.RUNNING)


def _gang(view: AttemptView, seen: Seen) -> GangSight | None:
    if not view.is_gang:
        return None
    told = seen.news
    was_placed = view.started_at is not None or (told is not None and told.allocated_at is not None)
    return GangSight(verdict=(told and told.verdict) or view.verdict, was_placed=was_placed)


def _after_unknown(view: AttemptView, now: datetime) -> Change:
    """The cluster answers and does not know the job: never arrived, or its head forgot (a restart loses all jobs)."""
    if view.state is AttemptState.POSTING:
        if view.stop_code is None:
            return Change()  # it is held up
        late = (now - (view.posted_at or view.state_since)).total_seconds() < LATE_POST_S
        stopped = End(end_class=EndClass.STOPPED, code=view.stop_code)
        return Change() if late else _over(stopped, AttemptState.RELEASING)
    return _over(End(end_class=EndClass.LOST, code=EndCode.HEAD_LOST), AttemptState.COLLECTING)


def _after_release(view: AttemptView, seen: Seen) -> Change:
    if not view.cluster_is_own:
        return Change(state=AttemptState.ENDED) if seen.done else Change()
    already = view.cluster is not None and view.cluster.state is ClusterState.DELETING
    return Change() if already else Change(delete_cluster=True)


def _time_is_up(view: AttemptView, now: datetime) -> bool:
    """At the earliest: that the runner says so counts, and nothing else ends with its code so late."""
    return view.max_runtime_s is not None and now - view.created_at >= timedelta(seconds=view.max_runtime_s)
