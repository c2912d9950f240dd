"""The life of one attempt as two plain functions: what to do next, and what follows from what was seen.

`decide_attempt(view, now)` names an action; the reconciler carries it out; `advance(view, action, seen, now)` says what
to store. Nothing is ever sent to another cluster: an attempt belongs to one cluster until it is over there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cluster_groups.model.cluster import ClusterState
from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.gateway.status import judge_end
from rayjobs.model.run import AttemptState, End, EndClass, EndCode, RunState
from rayjobs.snapshot import AttemptView

LATE_POST_S = 60.0
"""How long a submission sent by a process that died may still arrive; until then "unknown" is not "never sent"."""
COLLECT_PATIENCE_S = 60.0
"""How long an unreachable cluster is asked for the rest of a log before the log is closed without it."""
STOP_AGAIN_S = 20.0
"""After the grace and this, Ray is asked to stop again at every look."""
FORGET_AFTER_S = 3.0
"""Ray writes a job's record once more when its supervisor has left; a record deleted before that comes back FAILED."""
CONTENT_REFUSED = frozenset({400, 413, 422})
"""Statuses that speak of what was sent; other refusals are no fault of the user's."""


LEAST_PAUSE_S = 0.02
_FIRST_LOOK_S: Mapping[AttemptState, float | None] = {
    AttemptState.PENDING: 0.5,  # Ray starts no driver sooner,
    AttemptState.RUNNING: 0.06,  # and looks only each 0.1 s whether one has ended
    AttemptState.ENDED: None,
}


class Do(StrEnum):
    PROCEED = "proceed"
    """Nothing to ask anybody: the next state follows from the view alone."""
    POST = "post"
    LOOK = "look"
    STOP = "stop"
    COLLECT = "collect"
    RELEASE = "release"
    WAIT = "wait"
    """Too early for what comes next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    do: Do
    to: AttemptState | None = None
    """Where PROCEED leads."""
    end: End | None = None


class Problem(StrEnum):
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    PACKAGE_MISSING = "package_missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What came of an action. `job` is set after LOOK when the cluster knows the job; `done` after the others."""

    problem: Problem | None = None
    text: str = ""
    status: int = 0
    """HTTP status of a refusal."""
    job: RayJob | None = None
    done: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What to store. None leaves a field as it is; `delete_cluster` asks for the end of the run's own cluster."""

    state: AttemptState | None = None
    run_state: RunState | None = None
    end: End | None = None
    lost_since: datetime | None = None
    found_again: bool = False
    driver_address: str | None = None
    delete_cluster: bool = False
    posted: bool = False
    """A submission was sent just now, whatever became of it."""
    close_log: str | None = None
    """Why the log ends here although not all of it was read."""
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return self == Change()


def decide_attempt(view: AttemptView, now: datetime) -> Action | None:
    """None: nothing to do before something else changes."""
    return _DECIDE[view.state](view, now)


def advance(view: AttemptView, action: Action, seen: Seen, now: datetime) -> Change:
    if action.do is Do.PROCEED:
        return _proceed(view, action)
    if seen.problem is not None:
        return _after_problem(view, action, seen, now)
    if action.do is Do.POST:
        return Change(state=AttemptState.PENDING, posted=True, found_again=view.lost_since is not None)
    if action.do is Do.STOP and view.state is not AttemptState.STOPPING:
        return Change(state=AttemptState.STOPPING)
    if action.do in {Do.LOOK, Do.STOP}:
        return _after_look(view, seen.job, now)
    if action.do is Do.COLLECT:
        return Change(state=AttemptState.RELEASING) if seen.done else Change()
    return _after_release(view, seen) if action.do is Do.RELEASE else Change()


def pause_s(view: AttemptView, action: Action, change: Change, now: datetime) -> float | None:
    """Seconds until the next look. A young job is looked at often, an old one every few seconds."""
    if action.do is Do.WAIT:
        return max(0.0, FORGET_AFTER_S - (now - view.state_since).total_seconds())
    if change.state is not None:
        return _FIRST_LOOK_S.get(change.state, 0.0)
    if change.lost_since is not None or view.lost_since is not None or action.do is Do.POST:
        return 2.0
    if action.do is Do.COLLECT:
        return 0.2
    if action.do is Do.RELEASE:
        return None if view.cluster_is_own else 1.0
    age_s = (now - (view.started_at or view.posted_at or view.state_since)).total_seconds()
    return min(max(age_s * 0.05, LEAST_PAUSE_S), 5.0)


# --- what to do next -------------------------------------------------------------------------------------------------


def _in_cluster(view: AttemptView, now: datetime) -> Action | None:
    cluster = view.cluster
    if view.stop_code is not None:
        return _release(End(end_class=EndClass.STOPPED, code=view.stop_code))
    if cluster is None or cluster.state is ClusterState.DELETING:
        return _release(_deleted(view))
    if cluster.state is ClusterState.FAILED:
        reason = cluster.state_reason
        params = {"reason": reason.code, **reason.params} if reason else {}
        return _release(End(end_class=EndClass.PLATFORM, code=EndCode.CLUSTER_START_FAILED, params=params))
    if cluster.state is ClusterState.RUNNING:
        return Action(do=Do.PROCEED, to=AttemptState.POSTING)
    if now - view.created_at >= timedelta(seconds=view.start_timeout_s):
        params = {"start_timeout_s": view.start_timeout_s}
        return _release(End(end_class=EndClass.PLACEMENT, code=EndCode.START_TIMEOUT, params=params))
    return None


def _posting(view: AttemptView, now: datetime) -> Action:
    del now
    if view.cluster_is_gone:
        return _release(_end_by_loss(view))
    return Action(do=Do.LOOK if view.stop_code else Do.POST)


def _on_ray(view: AttemptView, now: datetime) -> Action:
    del now
    if view.cluster_is_gone:
        return Action(do=Do.PROCEED, to=AttemptState.COLLECTING, end=_end_by_loss(view))
    return Action(do=Do.STOP if view.stop_code else Do.LOOK)


def _stopping(view: AttemptView, now: datetime) -> Action:
    if view.cluster_is_gone:
        return Action(do=Do.PROCEED, to=AttemptState.COLLECTING, end=_end_by_loss(view))
    waited_s = (now - view.state_since).total_seconds()
    patience_s = view.stop_grace_s + STOP_AGAIN_S
    if waited_s > patience_s and view.cluster_is_own:
        end = End(end_class=EndClass.STOPPED, code=EndCode.FORCED)
        return Action(do=Do.PROCEED, to=AttemptState.COLLECTING, end=end)
    return Action(do=Do.STOP if waited_s > patience_s else Do.LOOK)


def _collecting(view: AttemptView, now: datetime) -> Action:
    del now
    if view.log_complete:
        return Action(do=Do.PROCEED, to=AttemptState.RELEASING)
    return Action(do=Do.COLLECT)


def _releasing(view: AttemptView, now: datetime) -> Action:
    if view.cluster is None or (not view.cluster_is_own and view.cluster_is_gone):
        return Action(do=Do.PROCEED, to=AttemptState.ENDED)
    too_early = now - view.state_since < timedelta(seconds=FORGET_AFTER_S)
    return Action(do=Do.WAIT if too_early and not view.cluster_is_own else Do.RELEASE)


def _nothing(view: AttemptView, now: datetime) -> None:
    del view, now


_DECIDE: Mapping[AttemptState, Callable[[AttemptView, datetime], Action | None]] = {
    AttemptState.CLUSTER: _in_cluster,
    AttemptState.POSTING: _posting,
    AttemptState.PENDING: _on_ray,
    AttemptState.RUNNING: _on_ray,
    AttemptState.STOPPING: _stopping,
    AttemptState.COLLECTING: _collecting,
    AttemptState.RELEASING: _releasing,
    AttemptState.ENDED: _nothing,
}


def _release(end: End) -> Action:
    return Action(do=Do.PROCEED, to=AttemptState.RELEASING, end=end)


def _deleted(view: AttemptView) -> End:
    return End(end_class=EndClass.LOST, code=EndCode.CLUSTER_DELETED, params={"cluster": view.cluster_name})


def _end_by_loss(view: AttemptView) -> End:
    """The cluster is confirmed gone: by somebody's word, or because it fell."""
    if view.stop_code is not None:
        return End(end_class=EndClass.STOPPED, code=view.stop_code)
    cluster = view.cluster
    if cluster is None or cluster.state is not ClusterState.FAILED:
        return _deleted(view)
    reason = cluster.state_reason
    params = {"cluster": cluster.name, "reason": reason.code if reason else None}
    return End(end_class=EndClass.LOST, code=EndCode.HEAD_LOST, params=params)


# --- what follows from what was seen ---------------------------------------------------------------------------------


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
    if seen.problem is Problem.PACKAGE_MISSING:
        params = {"package": seen.text}
        end = End(end_class=EndClass.PLATFORM, code=EndCode.PACKAGE_MISSING, params=params)
        return _over(end, AttemptState.RELEASING)
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
    if view.cluster is not None and view.cluster.state in {ClusterState.STOPPING, ClusterState.DELETING}:
        return Change()  # somebody takes it away; that it is gone will be told
    posted = action.do is Do.POST
    if view.lost_since is None:
        return Change(lost_since=now, posted=posted)
    if now - view.lost_since < timedelta(seconds=view.lost_timeout_s):
        return Change(posted=posted)
    lost = {"lost_timeout_s": view.lost_timeout_s, "since": view.lost_since.isoformat()}
    end = End(end_class=EndClass.LOST, code=EndCode.CLUSTER_LOST, params=lost)
    return _over(end, AttemptState.COLLECTING)


def _is_refusal(view: AttemptView, seen: Seen, now: datetime) -> bool:
    """A 5xx may come after the job was accepted: sent again, Ray says whether it has it; a lasting one is a no."""
    if seen.problem is not Problem.REFUSED:
        return False
    return seen.status < 500 or (now - view.state_since).total_seconds() > LATE_POST_S


def _after_look(view: AttemptView, job: RayJob | None, now: datetime) -> Change:
    if job is None:
        return _after_unknown(view, now)
    end = judge_end(job, stop_code=view.stop_code, time_is_up=_time_is_up(view, now))
    again = view.lost_since is not None
    if end is not None:
        return Change(
            state=AttemptState.COLLECTING,
            end=end,
            run_state=end.run_state,
            driver_address=job.driver_address,
            found_again=again,
        )
    if view.state is AttemptState.POSTING:
        return Change(state=AttemptState.PENDING, found_again=again)
    if view.state is AttemptState.PENDING and job.status is RayStatus.RUNNING:
        return Change(
            state=AttemptState.RUNNING,
            run_state=RunState.RUNNING,
            driver_address=job.driver_address,
            found_again=again,
        )
    return Change(found_again=again)


def _after_unknown(view: AttemptView, now: datetime) -> Change:
    """The cluster answers and does not know the job: never arrived, or its head forgot (a restart loses all jobs)."""
    if view.state is AttemptState.POSTING:
        late = (now - (view.posted_at or view.state_since)).total_seconds() < LATE_POST_S
        stopped = End(end_class=EndClass.STOPPED, code=view.stop_code or EndCode.BY_USER)
        return Change() if late else _over(stopped, AttemptState.RELEASING)
    return _over(End(end_class=EndClass.LOST, code=EndCode.HEAD_LOST), AttemptState.COLLECTING)


def _after_release(view: AttemptView, seen: Seen) -> Change:
    if not view.cluster_is_own:
        return Change(state=AttemptState.ENDED) if seen.done else Change()
    already = view.cluster is not None and view.cluster.state is ClusterState.DELETING
    return Change() if already else Change(delete_cluster=True)


def _time_is_up(view: AttemptView, now: datetime) -> bool:
    if view.max_runtime_s is None or view.posted_at is None:
        return False
    return now - view.posted_at >= timedelta(seconds=view.max_runtime_s)
