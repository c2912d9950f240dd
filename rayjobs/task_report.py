"""The tasks of a run as people see them: a plain job is one group of one task (R2), a gang has those of its job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rayjobs.model.job import MAIN_GROUP
from rayjobs.model.run import End, EndClass, RunState, TaskState
from rayjobs.tables import AttemptRow, RunRow, TaskRow
from rayjobs.task_store import GroupCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupReport:
    """How many tasks of a group are waiting, running, over."""

    name: str
    index: int
    count: int
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    stopped: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskReport:
    group: str
    group_index: int
    index: int
    state: TaskState
    exit_code: int | None = None
    node_ip: str | None = None
    container_ip: str | None = None
    host_ip: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


def tell_groups(row: RunRow, end: End | None, counts: GroupCounts) -> list[GroupReport]:
    """`counts` are of the tasks that have a place."""
    if not row.task_groups:
        return [_group(MAIN_GROUP, 0, 1, {_plain_state(row, end): 1})]
    groups = []
    for index, (name, count) in enumerate(row.task_groups):
        by_state = dict(counts.get(index, {}))
        state = _without_place(row)
        by_state[state] = by_state.get(state, 0) + count - sum(by_state.values())
        groups.append(_group(name, index, count, by_state))
    return groups


def tell_tasks(row: RunRow, end: End | None, present: AttemptRow | None, placed: Sequence[TaskRow]) -> list[TaskReport]:
    """`placed` are the tasks of the present attempt."""
    if not row.task_groups:
        return [_plain_task(row, end, present)]
    known = {(task.task_group, task.task): task for task in placed}
    return [
        _task(known[group, index])
        if (group, index) in known
        else TaskReport(group=name, group_index=group, index=index, state=_without_place(row))
        for group, (name, count) in enumerate(row.task_groups)
        for index in range(count)
    ]


def _group(name: str, index: int, count: int, by_state: dict[TaskState, int]) -> GroupReport:
    return GroupReport(
        name=name, index=index, count=count, **{state.lower(): by_state.get(state, 0) for state in TaskState}
    )


def _without_place(row: RunRow) -> TaskState:
    return TaskState.WAITING if row.ended_at is None else TaskState.STOPPED


def _plain_state(row: RunRow, end: End | None) -> TaskState:
    if end is None:
        is_running = row.state in {RunState.RUNNING, RunState.STOPPING}
        return TaskState.RUNNING if is_running else TaskState.WAITING
    if end.end_class is EndClass.COMPLETED:
        return TaskState.SUCCEEDED
    was_stopped = end.end_class is EndClass.STOPPED or row.started_at is None
    return TaskState.STOPPED if was_stopped else TaskState.FAILED


def _plain_task(row: RunRow, end: End | None, present: AttemptRow | None) -> TaskReport:
    """It is where the driver is or was, as far as the cluster told."""
    address = present.driver_address if present else None
    host = address.split("//")[-1].rsplit(":", 1)[0] if address else None
    return TaskReport(
        group=MAIN_GROUP,
        group_index=0,
        index=0,
        state=_plain_state(row, end),
        exit_code=end.exit_code if end else None,
        node_ip=host,
        container_ip=host,
        host_ip=host,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _task(row: TaskRow) -> TaskReport:
    return TaskReport(
        group=row.group_name,
        group_index=row.task_group,
        index=row.task,
        state=TaskState(row.state),
        exit_code=row.exit_code,
        node_ip=row.container_ip,
        container_ip=row.container_ip,
        host_ip=row.host_ip,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
