"""The life of one attempt as two plain functions: here what to do next, in `attempt_outcome` what follows from it.

`decide_attempt(view, now)` names an action; the reconciler carries it out; `advance(view, action, seen, now)` says what
to store. Nothing is ever sent to another cluster: an attempt belongs to one cluster until it is over there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.health import HealthStatus
from rayjobs.decide.gang_events import GangNews
from rayjobs.decide.retry import Again
from rayjobs.gateway.base import RayJob
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
LOST_NODE_S = 75.0
"""A node that cannot reach its head ends itself after 60 s (`RAY_gcs_rpc_server_reconnect_timeout_s`), and its guards
end the tasks within the grace."""
_FAULT_OF_THE_REQUEST = re.compile(r"\b(Value|Type)Error\b")
"""In the traceback that Ray answers: with 500, too, and for a runtime_env it takes at first and then cannot read."""


WATCHED_S = 60.0
"""How long a service that has just come up must have looked in vain before it gives up a run."""
LONGEST_PAUSE_S = 15.0
"""Between looks at a cluster that does not answer: its many runs shall not hold up those of others."""
LEAST_PAUSE_S = 0.05
_FIRST_LOOK_S: Mapping[AttemptState, float | None] = {
    AttemptState.PLACING: 0.5,  # Ray starts no gang's actors sooner,
    AttemptState.RUNNING: 0.06,  # and looks only each 0.1 s whether a driver has ended
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
    IMPOSSIBLE = "impossible"
    """It cannot be put to its cluster at all: `end` says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What came of an action. `job` is set after LOOK when the cluster knows the job; `done` after the others."""

    problem: Problem | None = None
    text: str = ""
    status: int = 0
    """HTTP status of a refusal."""
    job: RayJob | None = None
    news: GangNews | None = None
    """What the runner of a gang has told meanwhile."""
    done: bool = False
    end: End | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What to store. None leaves a field as it is; `delete_cluster` asks for the end of the run's own cluster."""

    state: AttemptState | None = None
    run_state: RunState | None = None
    end: End | None = None
    ended_at: datetime | None = None
    """Earlier than now where the cluster knows better: nobody may have looked for a while."""
    again: Again | None = None
    """The run goes back into its queue instead of ending with this attempt."""
    lost_since: datetime | None = None
    found_again: bool = False
    driver_address: str | None = None
    delete_cluster: bool = False
    posted: bool = False
    """A submission was sent just now, whatever became of it."""
    close_log: str | None = None
    """Why the log ends here although not all of it was read."""
    news: GangNews | None = None
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return self == Change()


def decide_attempt(view: AttemptView, now: datetime) -> Action | None:
    """None: nothing to do before something else changes."""
    return _DECIDE[view.state](as_of(view, now), now)


def as_of(view: AttemptView, now: datetime) -> AttemptView:
    """With the stop that time alone asks for."""
    closed = view.window_ends_at is not None and view.window_ends_at <= now
    return replace(view, stop_code=EndCode.WINDOW_ENDED) if closed and view.stop_code is None else view


def lost_at(view: AttemptView, lost_since: datetime) -> datetime:
    """When it is given up. What a service finds that was away itself may be on its way back, too."""
    timeout_s = float(view.lost_timeout_s)
    if view.is_let_go:
        timeout_s = min(timeout_s, view.stop_grace_s + STOP_AGAIN_S)
    watched_since = max(lost_since, view.watched_since or lost_since)
    watched_until = watched_since + timedelta(seconds=min(WATCHED_S, timeout_s))
    return max(lost_since + timedelta(seconds=timeout_s), watched_until)


def failed_submit(action: Action, seen: Seen, change: Change) -> str | None:
    """Why it could not begin there, where that is the cluster's own fault (policy.md §3)."""
    end = change.end
    if action.do is Do.POST and seen.problem is Problem.UNREACHABLE:
        return "UNREACHABLE"
    if action.do is Do.POST and seen.status >= 500:
        why, text = f"HTTP {seen.status}", seen.text
    elif end and end.code is EndCode.DRIVER_NOT_STARTED and end.end_class is EndClass.PLATFORM:
        why, text = str(end.code), str(end.params.get("message"))
    else:
        return None
    return None if is_about_the_request(text) else why


def is_about_the_request(text: str) -> bool:
    return _FAULT_OF_THE_REQUEST.search(text) is not None


def pause_s(view: AttemptView, action: Action, change: Change, now: datetime, start_s: float) -> float | None:
    """Seconds until the next look. A young job is looked at often, an old one every few seconds.

    And just when time alone changes something. `start_s` is how long drivers have lately taken there to start.
    """
    after_s = _pause_s(view, action, change, now, start_s)
    if after_s is None or view.end is not None:
        return after_s
    instants = [view.window_ends_at, lost_at(view, view.lost_since) if view.lost_since else None]
    return min([after_s, *((at - now).total_seconds() for at in instants if at is not None and at > now)])


def _pause_s(view: AttemptView, action: Action, change: Change, now: datetime, start_s: float) -> float | None:
    if action.do is Do.WAIT:
        left_s = _forget_after_s(view) - (now - view.state_since).total_seconds()
        return left_s if left_s > 0 else LONGEST_PAUSE_S
    if change.state is AttemptState.RELEASING and not view.cluster_is_own:
        return FORGET_AFTER_S
    if change.state is AttemptState.PENDING:
        return start_s
    if change.state is not None:
        return _FIRST_LOOK_S.get(change.state, 0.0)
    if change.lost_since is not None or view.lost_since is not None or action.do is Do.POST:
        lost_s = (now - (view.lost_since or now)).total_seconds()
        return min(max(lost_s * 0.1, 2.0), LONGEST_PAUSE_S)
    if action.do is Do.COLLECT:
        return 0.2
    if action.do is Do.RELEASE:
        waited_s = (now - view.state_since).total_seconds()
        return None if view.cluster_is_own else min(max(waited_s * 0.1, 1.0), LONGEST_PAUSE_S)
    age_s = (now - (view.started_at or view.posted_at or view.state_since)).total_seconds()
    return min(max(age_s * 0.1, LEAST_PAUSE_S), 5.0)


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
    return Action(do=Do.LOOK if view.stop_code or view.is_held_up else Do.POST)


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
        end = End(end_class=EndClass.STOPPED, code=view.stop_code or EndCode.FORCED)
        return Action(do=Do.PROCEED, to=AttemptState.COLLECTING, end=end)
    return Action(do=Do.STOP if waited_s > patience_s else Do.LOOK)


def _collecting(view: AttemptView, now: datetime) -> Action:
    del now
    if view.log_complete:
        return Action(do=Do.PROCEED, to=AttemptState.RELEASING)
    return Action(do=Do.COLLECT)


def _releasing(view: AttemptView, now: datetime) -> Action:
    over = Action(do=Do.PROCEED, to=AttemptState.ENDED)
    if view.cluster is None:
        return over
    if view.cluster_is_own:
        return Action(do=Do.RELEASE)
    if view.cluster.is_absent:
        return over
    fell_at = view.cluster.state_since if view.cluster.state is ClusterState.FAILED else None
    if now - max(view.state_since, fell_at or view.state_since) < timedelta(seconds=_forget_after_s(view)):
        return Action(do=Do.WAIT)  # nodes outlive their head for a while
    if view.cluster_is_gone:
        return over
    is_back = not _was_given_up(view) or view.cluster.health is HealthStatus.HEALTHY
    return Action(do=Do.RELEASE) if is_back else Action(do=Do.WAIT)


def _forget_after_s(view: AttemptView) -> float:
    """Before another attempt, what was lost must have ended by itself where nobody sees it."""
    is_lost = view.end is not None and view.end.end_class is EndClass.LOST
    may_go_on = is_lost and (view.run_state is RunState.WAITING or _was_given_up(view))
    return LOST_NODE_S + view.stop_grace_s if may_go_on else FORGET_AFTER_S


def _was_given_up(view: AttemptView) -> bool:
    """Nobody knows what became of it, and its submission may still be on its way.

    So a cluster that has only just come back is not asked: it may not know of everything yet, and takes no work.
    """
    return view.end is not None and view.end.code is EndCode.CLUSTER_LOST


def _nothing(view: AttemptView, now: datetime) -> None:
    del view, now


_DECIDE: Mapping[AttemptState, Callable[[AttemptView, datetime], Action | None]] = {
    AttemptState.CLUSTER: _in_cluster,
    AttemptState.POSTING: _posting,
    AttemptState.PENDING: _on_ray,
    AttemptState.PLACING: _on_ray,
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
