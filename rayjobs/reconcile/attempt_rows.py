"""Pure: which columns of an attempt, of its run and of its usage a change comes to."""

from datetime import datetime
from typing import Any

from kernel.reasons import Owner
from kernel.states import move
from rayjobs import run_store
from rayjobs.decide.attempt import Change
from rayjobs.model.job import RunMode
from rayjobs.model.run import ATTEMPT_TRANSITIONS, RUN_TRANSITIONS, AttemptState, Condition, RunState
from rayjobs.snapshot import AttemptView


def attempt_columns(view: AttemptView, change: Change, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if change.state is not None:
        columns["state"] = move(ATTEMPT_TRANSITIONS, view.state, change.state)
        columns["state_since"] = now
    if change.posted or change.state is AttemptState.POSTING:
        columns["posted_at"] = now
    if change.state is AttemptState.PLACING:
        columns["placing_at"] = now
    if change.state is AttemptState.ENDED:
        columns["ended_at"] = now
    if change.end is not None:
        columns["end"] = run_store.end_to_json(change.end)
    if change.lost_since is not None or change.found_again:
        columns["lost_since"] = change.lost_since
    if change.driver_address is not None:
        columns["driver_address"] = change.driver_address
    return columns | _given(allocated_at=_allocated_at(view, change, now), started_at=_started_at(view, change, now))


def run_columns(view: AttemptView, change: Change, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if change.again is not None:
        return _back_in_queue(view, change, now)
    if change.run_state is not None:
        columns["state"] = move(RUN_TRANSITIONS, view.run_state, change.run_state)
    if change.end is not None:
        columns |= {"end": run_store.end_to_json(change.end), "ended_at": change.ended_at or now, "condition": None}
    elif change.lost_since is not None:
        params = {"cluster": view.cluster_name}
        columns["condition"] = _condition("CLUSTER_LOST", params, now)
    elif change.found_again:
        columns["condition"] = None
    return columns | _given(allocated_at=_allocated_at(view, change, now), started_at=_started_at(view, change, now))


def usage_columns(view: AttemptView, change: Change, now: datetime) -> dict[str, Any]:
    """A cluster of the run's own is charged until it is gone, all else while an attempt holds it."""
    columns: dict[str, Any] = {"in_vain": True} if change.again is not None else {}
    if not view.cluster_is_own:
        ended_at = (change.ended_at or now) if change.end is not None else None
        return columns | _given(began_at=_allocated_at(view, change, now), ended_at=ended_at)
    came_up = view.state is AttemptState.CLUSTER and change.state is AttemptState.POSTING
    ended = change.state is AttemptState.ENDED
    if came_up or (ended and view.posted_at is None):
        columns["cold_start_s"] = (now - view.created_at).total_seconds()
    return columns | _given(began_at=_allocated_at(view, change, now), ended_at=now if ended else None)


def _back_in_queue(view: AttemptView, change: Change, now: datetime) -> dict[str, Any]:
    """With its age, but not to wait out its `max_wait_s` for time in which it ran; where it goes is asked anew."""
    again = change.again
    assert again is not None  # noqa: S101 - the caller looked
    columns: dict[str, Any] = {
        "state": move(RUN_TRANSITIONS, view.run_state, RunState.WAITING),
        "condition": _condition(again.reason.code, again.reason.params, now),
        "not_before": again.not_before,
        "allocated_at": None,
        "started_at": None,
        "tries": view.tries + again.counts,
    }
    if view.run_mode is not RunMode.CLUSTER:
        columns |= {"cluster": None, "cluster_id": None}
    if (view.started_at or _started_at(view, change, now)) is not None:
        columns["waiting_since"] = now
    return columns


def _started_at(view: AttemptView, change: Change, now: datetime) -> datetime | None:
    """A gang when all its tasks had their places; a driver when it was seen, or sent if it was over before a look."""
    if view.started_at is not None:
        return None
    if view.is_gang:
        return change.news.allocated_at if change.news else None
    if change.run_state is RunState.RUNNING:
        return now
    return view.posted_at if change.end is not None and change.end.exit_code is not None else None


def _allocated_at(view: AttemptView, change: Change, now: datetime) -> datetime | None:
    """R8. A driver alone has its place when it is given to it, on a cluster of its own when that is up."""
    if view.allocated_at is not None:
        return None
    if view.cluster_is_own and not view.is_gang:
        return now if change.state is AttemptState.POSTING else None
    return _started_at(view, change, now)


def _condition(code: str, params: Any, now: datetime) -> dict[str, Any]:
    condition = Condition(code=code, owner=Owner.PLATFORM, params=params, since=now)
    return run_store.condition_to_json(condition)


def _given(**values: datetime | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
