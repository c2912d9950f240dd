"""Tasks of gangs as rows: written as their runner's events tell, counted, asked for by whoever copies their logs."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.resources import Resources
from rayjobs.decide.gang_events import TaskKey, TaskNews
from rayjobs.model.job import TaskGroup
from rayjobs.model.run import TASK_ENDS, TaskState
from rayjobs.tables import LogRow, TaskRow

GroupCounts = Mapping[int, Mapping[TaskState, int]]
"""By a group's index."""

_FIELDS = tuple(field.name for field in fields(TaskNews))
_NOT_ENDED = TaskRow.state.not_in(TASK_ENDS)


async def of_attempt(session: AsyncSession, attempt_id: str) -> list[TaskRow]:
    """In order. Tasks without a place have no row yet."""
    statement = select(TaskRow).where(TaskRow.attempt_id == attempt_id).order_by(TaskRow.task_group, TaskRow.task)
    return list(await session.scalars(statement))


async def write_news(
    session: AsyncSession, attempt_id: str, groups: Sequence[TaskGroup], news: Mapping[TaskKey, TaskNews]
) -> tuple[list[TaskRow], list[TaskRow]]:
    """All tasks that are known now, and those that are new among the failed. Once ended, a task stays as it is."""
    rows = {(row.task_group, row.task): row for row in await of_attempt(session, attempt_id)}
    failed = []
    for (group, task), told in news.items():
        row = rows.get((group, task))
        if row is None:
            row = TaskRow(attempt_id=attempt_id, task_group=group, task=task, group_name=groups[group].name)
            row.state = TaskState.WAITING
            rows[group, task] = row
            session.add(row)
        if row.state not in TASK_ENDS:
            _update(row, told)
            if row.state == TaskState.FAILED:
                failed.append(row)
    await session.flush()
    return list(rows.values()), failed


async def settle(session: AsyncSession, attempt_id: str, at: datetime) -> None:
    """The attempt is over; how the tasks would have ended that nobody saw end, nobody will know."""
    statement = update(TaskRow).where(TaskRow.attempt_id == attempt_id, _NOT_ENDED)
    await session.execute(statement.values(state=TaskState.STOPPED, ended_at=at))


async def counts(session: AsyncSession, attempt_ids: Sequence[str]) -> dict[str, GroupCounts]:
    columns = (TaskRow.attempt_id, TaskRow.task_group, TaskRow.state)
    statement = select(*columns, func.count()).where(TaskRow.attempt_id.in_(attempt_ids)).group_by(*columns)
    found: dict[str, dict[int, dict[TaskState, int]]] = {}
    for attempt_id, group, state, count in await session.execute(statement):
        found.setdefault(attempt_id, {}).setdefault(group, {})[TaskState(state)] = count
    return dict(found)


async def with_open_logs(session: AsyncSession, attempt_id: str) -> list[TaskRow]:
    """Tasks whose log may still grow or is not copied to its end; there is none where no agent serves it."""
    statement = (
        select(TaskRow)
        .outerjoin(
            LogRow,
            (LogRow.attempt_id == TaskRow.attempt_id)
            & (LogRow.task_group == TaskRow.group_name)
            & (LogRow.task == TaskRow.task),
        )
        .where(
            TaskRow.attempt_id == attempt_id,
            TaskRow.agent_address.is_not(None),
            or_(LogRow.complete.is_(None), LogRow.complete.is_(False)),
        )
        .order_by(TaskRow.task_group, TaskRow.task)
    )
    return list(await session.scalars(statement))


def placement_of(tasks: Sequence[TaskRow], groups: Sequence[TaskGroup]) -> dict[str, Resources] | None:
    """How much of the gang lies on which node; None unless every task's node is known."""
    placed = [(task.node_id, groups[task.task_group].resources) for task in tasks if task.node_id is not None]
    if len(placed) < sum(group.count for group in groups):
        return None
    amounts: dict[str, Resources] = {}
    for node, amount in placed:
        amounts[node] = amounts.get(node, Resources()) + amount
    return amounts


def _update(row: TaskRow, told: TaskNews) -> None:
    for name in _FIELDS:
        value: Any = getattr(told, name)
        if value is not None:
            setattr(row, name, value)
