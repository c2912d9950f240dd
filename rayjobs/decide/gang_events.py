"""What the runner of a gang writes into its events, made into what is to be stored.

The file lies on a node and is written under the user's account, so each line is a claim: what it says must fit the
job, its instants lie between the submission and now, and an end in it counts only as far as Ray's own agrees
(`gateway.status`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rayjobs.gateway.base import agent_address
from rayjobs.model.job import TaskGroup
from rayjobs.model.run import End, EndClass, EndCode, TaskState

TaskKey = tuple[int, int]
"""Indexes of the group and of the task in it."""

MAX_TEXT = 4000
_PARAMS: Mapping[tuple[EndClass, EndCode], Mapping[str, type]] = {
    (EndClass.COMPLETED, EndCode.ALL_TASKS_DONE): {},
    (EndClass.COMPLETED, EndCode.MIN_SUCCEEDED): {"task_group": str, "succeeded": int},
    (EndClass.USER, EndCode.EXIT_NONZERO): {"exit_code": int},
    (EndClass.USER, EndCode.SIGNAL): {"signal": str},
    (EndClass.USER, EndCode.MIN_FAILED): {"task_group": str, "failed": int, "min_failed": int},
    (EndClass.LOST, EndCode.NODE_LOST): {},
    (EndClass.LOST, EndCode.LEASE_LOST): {},
    (EndClass.PLACEMENT, EndCode.GANG_TIMEOUT): {"missing": int, "wanted": int, "gang_timeout_s": int},
    (EndClass.TIMEOUT, EndCode.MAX_RUNTIME): {},
    (EndClass.ENVIRONMENT, EndCode.RUNTIME_ENV_FAILED): {"message": str},
    (EndClass.PLATFORM, EndCode.RUNNER_FAILED): {"message": str},
}
"""The ends a runner may speak of, with their params."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskNews:
    """What is new of one task; None leaves a field as it is."""

    state: TaskState | None = None
    node_id: str | None = None
    container_ip: str | None = None
    host_ip: str | None = None
    agent_address: str | None = None
    exit_code: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GangNews:
    """`read_bytes` is how much of the file is done with; `skipped` lines of it said nothing that makes sense."""

    read_bytes: int = 0
    skipped: int = 0
    wanted_at: datetime | None = None
    allocated_at: datetime | None = None
    tasks: Mapping[TaskKey, TaskNews] = field(default_factory=dict)
    verdict: End | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a line must fit."""

    groups: Sequence[TaskGroup]
    earliest: datetime
    now: datetime


def whole_lines(data: bytes, limit_bytes: int) -> bytes:
    """`data` up to its last line feed; all of it when a line is longer than whatever is read at once."""
    end = data.rfind(b"\n") + 1
    return data[:end] if end or len(data) < limit_bytes else data


def read_events(lines: bytes, bounds: Bounds) -> GangNews:
    news = GangNews(read_bytes=len(lines))
    tasks: dict[TaskKey, TaskNews] = {}
    for line in lines.splitlines():
        try:
            news = _take(news, tasks, json.loads(line), bounds)
        except (ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
            news = replace(news, skipped=news.skipped + 1)
    return replace(news, tasks=tasks)


def _take(news: GangNews, tasks: dict[TaskKey, TaskNews], event: Mapping[str, Any], bounds: Bounds) -> GangNews:
    """Raises ValueError, TypeError or KeyError for what makes no sense."""
    kind, at = event["type"], _instant(event["at"], bounds)
    if kind == "gang_waiting":
        return replace(news, wanted_at=news.wanted_at or at)
    if kind == "gang_allocated":
        return replace(news, allocated_at=news.allocated_at or at)
    if kind == "verdict":
        is_stop = event["end_class"] == EndClass.STOPPED  # why, Muster itself knows
        return news if is_stop else replace(news, verdict=_verdict(event, bounds.groups))
    if kind not in _TASK_EVENTS:
        raise ValueError(kind)
    key = _task(event, bounds.groups)
    tasks[key] = _TASK_EVENTS[kind](tasks.get(key, TaskNews()), event, at)
    return news


def _placed(task: TaskNews, event: Mapping[str, Any], at: datetime) -> TaskNews:
    del at
    address = agent_address(_text(event["agent"]))
    if address is None:
        raise ValueError(event["agent"])
    return replace(
        task,
        node_id=_text(event["node_id"]),
        container_ip=_text(event["ip"]),
        host_ip=_text(event["host_ip"]),
        agent_address=address,
    )


def _started(task: TaskNews, event: Mapping[str, Any], at: datetime) -> TaskNews:
    del event
    return replace(task, state=TaskState.RUNNING, started_at=at) if task.ended_at is None else task


def _ended(task: TaskNews, event: Mapping[str, Any], at: datetime) -> TaskNews:
    how, code, number = event["how"], event.get("exit_code"), event.get("signal")
    if how not in {"exited", "stopped", "lost"}:
        raise ValueError(how)
    exit_code = _whole(code) if code is not None else 128 + _whole(number) if number is not None else None
    exited = TaskState.SUCCEEDED if exit_code == 0 else TaskState.FAILED
    if task.ended_at is not None:
        return task
    states = {"exited": exited, "stopped": TaskState.STOPPED, "lost": TaskState.FAILED}
    return replace(task, state=states[how], exit_code=exit_code, ended_at=at)


_TASK_EVENTS = {"task_placed": _placed, "task_started": _started, "task_ended": _ended}


def _verdict(event: Mapping[str, Any], groups: Sequence[TaskGroup]) -> End:
    end_class, code = EndClass(event["end_class"]), EndCode(event["code"])
    told = event.get("params", {})
    params = {name: (_whole if kind is int else _text)(told[name]) for name, kind in _PARAMS[end_class, code].items()}
    has_task = event.get("group") is not None and event.get("task") is not None
    group, task = _task(event, groups) if has_task else (None, None)
    exit_code = event.get("exit_code")
    return End(
        end_class=end_class,
        code=code,
        exit_code=None if exit_code is None else _whole(exit_code),
        params=params,
        task_group=None if group is None else groups[group].name,
        task=task,
    )


def _task(event: Mapping[str, Any], groups: Sequence[TaskGroup]) -> TaskKey:
    group, task = _whole(event["group"]), _whole(event["task"])
    if not 0 <= group < len(groups) or not 0 <= task < groups[group].count:
        raise ValueError(f"no task {group}/{task}")
    return group, task


def _instant(told: Any, bounds: Bounds) -> datetime:
    """A node's clock may be wrong."""
    return min(max(datetime.fromtimestamp(float(told), UTC), bounds.earliest), bounds.now)


def _whole(told: Any) -> int:
    if isinstance(told, bool) or not isinstance(told, int | float) or abs(told) > 2**31 - 1:
        raise TypeError(told)
    return int(told)


def _text(told: Any) -> str:
    if not isinstance(told, str):
        raise TypeError(told)
    return told[:MAX_TEXT].replace("\0", "").encode("utf-8", "replace").decode()  # what a database takes
