"""A run as people see it: its row, its attempts, its phases, and where it stands in its queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.store import clusters
from kernel.events import EventRow
from rayjobs import run_store, task_store
from rayjobs.model.job import RunMode
from rayjobs.model.run import (
    PLACED_STATES,
    WAITING_STATES,
    AttemptState,
    Condition,
    End,
    EndClass,
)
from rayjobs.phases import Phase, Times, tell_phases
from rayjobs.standing import Standing, effective_priorities, standing_of
from rayjobs.tables import AttemptRow, RunRow
from rayjobs.task_report import Execution, GroupReport, TaskReport, tell_groups, tell_tasks


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    row: RunRow
    attempts: list[AttemptRow]
    present: AttemptRow | None
    """The attempt that the run's state and end are about; none while it waits, again or for the first time."""
    phases: list[Phase]
    condition: Condition | None
    end: End | None
    groups: list[GroupReport]
    effective_priority: int | None
    """While it waits; then what was asked for."""
    standing: Standing | None = None

    @property
    def failed_tasks(self) -> int:
        return sum(group.failed for group in self.groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Nodes:
    """Of a run's own cluster."""

    up: int = 0
    wanted: int = 0
    first_at: datetime | None = None


async def report_one(session: AsyncSession, row: RunRow, now: datetime) -> RunReport:
    """With its standing, which costs a look at the queue."""
    (report,) = await report_many(session, [row], now)
    if row.state not in WAITING_STATES:
        return report
    return replace(report, standing=await standing_of(session, row, now))


def report_new(row: RunRow) -> RunReport:
    """Of a run that was just stored: nothing has come of it yet that would have to be asked for."""
    return _report(row, [], _Nodes(), {})


async def report_many(session: AsyncSession, rows: Sequence[RunRow], now: datetime) -> list[RunReport]:
    attempts = await run_store.attempts_of(session, [row.id for row in rows])
    nodes = await _nodes(session, rows)
    gangs = [present.id for row in rows if row.task_groups and (present := _present(row, attempts[row.id]))]
    counts = await task_store.counts(session, gangs) if gangs else {}
    priorities = await effective_priorities(session, rows, now)
    reports = [_report(row, attempts[row.id], nodes.get(row.cluster_id or "", _Nodes()), counts) for row in rows]
    return [replace(report, effective_priority=priorities[report.row.id]) for report in reports]


async def report_tasks(session: AsyncSession, row: RunRow, epoch: int | None = None) -> list[TaskReport]:
    """Each task of the run, in order: as it is now, or as it was in one attempt."""
    if epoch is None:
        attempt = _present(row, (await run_store.attempts_of(session, [row.id]))[row.id])
        execution = Execution.of(row, row, attempt)
    else:
        attempt = await run_store.attempt_of(session, row.id, epoch)
        execution = Execution.of(row, attempt, attempt)
    placed = await task_store.of_attempt(session, attempt.id) if attempt is not None and row.task_groups else []
    return tell_tasks(execution, placed)


async def events_of(session: AsyncSession, run_id: str) -> list[EventRow]:
    """Oldest first."""
    statement = select(EventRow).where(EventRow.target_id == run_id).order_by(EventRow.seq)
    return list(await session.scalars(statement))


def told_end(row: RunRow | AttemptRow, stopped_by: str | None) -> End | None:
    """With who stopped it, which only the run's row keeps."""
    end = run_store.end_from_json(row.end)
    if end is None or end.end_class is not EndClass.STOPPED or stopped_by is None:
        return end
    return replace(end, params={**end.params, "by": stopped_by})


async def _nodes(session: AsyncSession, rows: Sequence[RunRow]) -> dict[str, _Nodes]:
    own = [row.cluster_id for row in rows if row.run_mode == RunMode.ON_DEMAND and row.cluster_id is not None]
    if not own:
        return {}
    first = await clusters.first_node_at(session, own)
    counts = await clusters.progress(session, own)
    return {one: _Nodes(up=up, wanted=wanted, first_at=first.get(one)) for one, (up, wanted) in counts.items()}


def _present(row: RunRow, attempts: Sequence[AttemptRow]) -> AttemptRow | None:
    last = attempts[-1] if attempts else None
    is_about = last is not None and (row.state in PLACED_STATES or (row.end is not None and row.end == last.end))
    return last if is_about else None


def _report(
    row: RunRow, attempts: list[AttemptRow], nodes: _Nodes, counts: Mapping[str, task_store.GroupCounts]
) -> RunReport:
    present, end = _present(row, attempts), told_end(row, row.stop_requested_by)
    return RunReport(
        row=row,
        attempts=attempts,
        present=present,
        phases=tell_phases(_times(row, present, nodes)),
        condition=run_store.condition_from_json(row.condition),
        end=end,
        groups=tell_groups(Execution.of(row, row, present), counts.get(present.id, {}) if present else {}),
        effective_priority=row.priority,
    )


def _times(row: RunRow, present: AttemptRow | None, nodes: _Nodes) -> Times:
    queued = Times(
        run_mode=RunMode(row.run_mode),
        is_gang=bool(row.task_groups),
        queued_at=row.waiting_since,
        over_at=row.ended_at,
        nodes_up=nodes.up,
        nodes_wanted=nodes.wanted,
    )
    if present is None:
        return queued
    return replace(
        queued,
        placed_at=present.created_at,
        first_node_at=nodes.first_at,
        up_at=present.allocated_at or present.posted_at,
        driver_at=present.placing_at or row.started_at,
        started_at=row.started_at,
        released_at=present.ended_at if present.state == AttemptState.ENDED else None,
    )
