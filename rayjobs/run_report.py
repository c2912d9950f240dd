"""A run as people see it: its row, its attempts, its phases, and where it stands in its queue."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.store import clusters
from kernel.events import EventRow
from rayjobs import run_store
from rayjobs.model.job import RunMode
from rayjobs.model.run import (
    WAITING_STATES,
    AttemptState,
    Condition,
    End,
    EndClass,
    RunState,
)
from rayjobs.phases import Phase, Times, tell_phases
from rayjobs.tables import AttemptRow, RunRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Place in the queue from 1, and the nearest runs ahead."""

    position: int
    ahead: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunReport:
    row: RunRow
    attempts: list[AttemptRow]
    phases: list[Phase]
    condition: Condition | None
    end: End | None
    standing: Standing | None = None

    @property
    def task_counts(self) -> dict[str, int]:
        """How many of the run's tasks are waiting, running, over; a plain job has one task."""
        return {name: int(name == task_state(self.row, self.end)) for name in TASK_STATES}


TASK_STATES = ("waiting", "running", "succeeded", "failed", "stopped")


def task_state(row: RunRow, end: End | None) -> str:
    state = RunState(row.state)
    if end is None:
        return "running" if state in {RunState.RUNNING, RunState.STOPPING} else "waiting"
    if end.end_class is EndClass.COMPLETED:
        return "succeeded"
    return "stopped" if end.end_class is EndClass.STOPPED or row.started_at is None else "failed"


async def report_one(session: AsyncSession, row: RunRow) -> RunReport:
    """With its standing, which costs a look at the queue."""
    (report,) = await report_many(session, [row])
    if row.state not in WAITING_STATES:
        return report
    position, ahead = await run_store.place_in_queue(session, row)
    return replace(report, standing=Standing(position=position, ahead=ahead))


def report_new(row: RunRow) -> RunReport:
    """Of a run that was just stored: nothing has come of it yet that would have to be asked for."""
    return _report(row, [], (0, 0))


async def report_many(session: AsyncSession, rows: Sequence[RunRow]) -> list[RunReport]:
    attempts = await run_store.attempts_of(session, [row.id for row in rows])
    own = [row.cluster_id for row in rows if row.run_mode == RunMode.ON_DEMAND and row.cluster_id is not None]
    nodes = await clusters.progress(session, own) if own else {}
    return [_report(row, attempts[row.id], nodes.get(row.cluster_id or "", (0, 0))) for row in rows]


async def events_of(session: AsyncSession, run_id: str) -> list[EventRow]:
    """Oldest first."""
    statement = select(EventRow).where(EventRow.target_id == run_id).order_by(EventRow.seq)
    return list(await session.scalars(statement))


def attempt_end(row: AttemptRow) -> End | None:
    return run_store.end_from_json(row.end)


def driver_facts(report: RunReport) -> dict[str, Any]:
    """Where the one task of a plain run is or was, as far as the cluster told."""
    address = report.attempts[-1].driver_address if report.attempts else None
    host = address.split("//")[-1].rsplit(":", 1)[0] if address else None
    return {"node_ip": host, "container_ip": host, "host_ip": host}


def _report(row: RunRow, attempts: list[AttemptRow], nodes: tuple[int, int]) -> RunReport:
    return RunReport(
        row=row,
        attempts=attempts,
        phases=tell_phases(_times(row, attempts, nodes)),
        condition=run_store.condition_from_json(row.condition),
        end=run_store.end_from_json(row.end),
    )


def _times(row: RunRow, attempts: Sequence[AttemptRow], nodes: tuple[int, int]) -> Times:
    last = attempts[-1] if attempts else None
    released: datetime | None = last.ended_at if last and last.state == AttemptState.ENDED else None
    return Times(
        run_mode=RunMode(row.run_mode),
        enqueued_at=row.enqueued_at,
        allocated_at=row.allocated_at,
        posted_at=last.posted_at if last else None,
        started_at=row.started_at,
        over_at=row.ended_at,
        released_at=released,
        nodes_up=nodes[0],
        nodes_wanted=nodes[1],
    )
