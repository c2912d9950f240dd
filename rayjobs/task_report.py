"""The tasks of a run as people see them: a plain job is one group of one task (R2), a gang has those of its job."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rayjobs.model.job import MAIN_GROUP
from rayjobs.model.run import AttemptState, End, EndClass, RunState, TaskState
from rayjobs.run_store import end_from_json
from rayjobs.tables import AttemptRow, RunRow, TaskRow
from rayjobs.task_store import GroupCounts

_RUNNING = frozenset({RunState.RUNNING, RunState.STOPPING, AttemptState.RUNNING, AttemptState.STOPPING})


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """What tasks are told of: a run as it is now, or one of its attempts as it was. `task_groups` are names, counts."""

    task_groups: Sequence[tuple[str, int]]
    is_running: bool
    end: End | None
    started_at: datetime | None
    ended_at: datetime | None
    host: str | None
    """Where the driver is or was, as far as the cluster told."""

    @classmethod
    def of(cls, run: RunRow, told: RunRow | AttemptRow, attempt: AttemptRow | None) -> "Execution":
        """`told` is the run itself, or one of its attempts; `attempt` is the one whose tasks they are."""
        return cls(
            task_groups=run.task_groups,
            is_running=told.state in _RUNNING,
            end=end_from_json(told.end),
            started_at=told.started_at,
            ended_at=told.ended_at,
            host=_host(attempt),
        )


def tell_groups(execution: Execution, counts: GroupCounts) -> list[GroupReport]:
    """`counts` are of the tasks that have a place."""
    if not execution.task_groups:
        return [_group(MAIN_GROUP, 0, 1, {_plain_state(execution): 1})]
    groups = []
    for index, (name, count) in enumerate(execution.task_groups):
        by_state = dict(counts.get(index, {}))
        state = _without_place(execution)
        by_state[state] = by_state.get(state, 0) + count - sum(by_state.values())
        groups.append(_group(name, index, count, by_state))
    return groups


def tell_tasks(execution: Execution, placed: Sequence[TaskRow]) -> list[TaskReport]:
    """`placed` are the tasks of its attempt."""
    if not execution.task_groups:
        return [_plain_task(execution)]
    known = {(task.task_group, task.task): task for task in placed}
    return [
        _task(known[group, index])
        if (group, index) in known
        else TaskReport(group=name, group_index=group, index=index, state=_without_place(execution))
        for group, (name, count) in enumerate(execution.task_groups)
        for index in range(count)
    ]


def _group(name: str, index: int, count: int, by_state: dict[TaskState, int]) -> GroupReport:
    return GroupReport(
        name=name, index=index, count=count, **{state.lower(): by_state.get(state, 0) for state in TaskState}
    )


def _host(attempt: AttemptRow | None) -> str | None:
    address = attempt.driver_address if attempt else None
    return address.split("//")[-1].rsplit(":", 1)[0] if address else None


def _without_place(execution: Execution) -> TaskState:
    return TaskState.WAITING if execution.end is None else TaskState.STOPPED


def _plain_state(execution: Execution) -> TaskState:
    end = execution.end
    if end is None:
        return TaskState.RUNNING if execution.is_running else TaskState.WAITING
    if end.end_class is EndClass.COMPLETED:
        return TaskState.SUCCEEDED
    was_stopped = end.end_class is EndClass.STOPPED or execution.started_at is None
    return TaskState.STOPPED if was_stopped else TaskState.FAILED


def _plain_task(execution: Execution) -> TaskReport:
    return TaskReport(
        group=MAIN_GROUP,
        group_index=0,
        index=0,
        state=_plain_state(execution),
        exit_code=execution.end.exit_code if execution.end else None,
        node_ip=execution.host,
        container_ip=execution.host,
        host_ip=execution.host,
        started_at=execution.started_at,
        ended_at=execution.ended_at,
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
