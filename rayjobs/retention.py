"""Runs and logs are kept for as long as the installation says, then they go: rows first, blobs after."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.store import clusters
from kernel.db import Database
from kernel.events import EventRow
from rayjobs.logs import LOGS, LogId, piece_key
from rayjobs.model.job import Origin
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, JobRevisionRow, JobRow, LogRow, RunRow
from runtime_envs.packages.base import BlobStore

AT_ONCE = 500
GRACE = timedelta(days=1)
"""A piece of a log comes before the row that names it: what is younger may still be on its way in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    runs_days: int
    logs_days: int


async def expire(database: Database, blobs: BlobStore, keep: Keep, now: datetime) -> None:
    """Forget ended runs older than `runs_days`, and logs older than `logs_days`, and log blobs nobody names."""
    before = now - timedelta(days=keep.runs_days)
    while await _forget_runs(database, before):
        pass
    async with database.write() as session:
        await _forget_hidden_jobs(session, before)
        await clusters.forget_deleted(session, before)
    async with database.write() as session:
        old = select(AttemptRow.id).where(AttemptRow.ended_at < now - timedelta(days=keep.logs_days))
        await session.execute(delete(LogRow).where(LogRow.attempt_id.in_(old)))
    await _drop_stray_blobs(database, blobs, now)


async def _forget_runs(database: Database, before: datetime) -> bool:
    """A bounded number at a time, so that nobody waits long for the one writer; True: there may be more."""
    unfinished = select(AttemptRow.run_id).where(IS_NOT_ENDED)
    async with database.write() as session:
        statement = select(RunRow.id).where(RunRow.ended_at < before, RunRow.id.not_in(unfinished)).limit(AT_ONCE)
        ids = list(await session.scalars(statement))
        await session.execute(delete(EventRow).where(EventRow.target_id.in_(ids)))
        await session.execute(delete(RunRow).where(RunRow.id.in_(ids)))
    return len(ids) == AT_ONCE


async def _forget_hidden_jobs(session: AsyncSession, before: datetime) -> None:
    """A submission to the Ray endpoint made one; it goes with its runs."""
    has_runs = select(RunRow.job_id)
    hidden = JobRow.origin == Origin.RAY_JOBS
    gone = select(JobRow.id).where(hidden, JobRow.created_at < before, JobRow.id.not_in(has_runs))
    ids = list(await session.scalars(gone))
    for row, column in ((EventRow, EventRow.target_id), (JobRevisionRow, JobRevisionRow.job_id), (JobRow, JobRow.id)):
        await session.execute(delete(row).where(column.in_(ids)))


async def _drop_stray_blobs(database: Database, blobs: BlobStore, now: datetime) -> None:
    async with database.read() as session:
        named = await _named_pieces(session)
    async for blob in blobs.find(LOGS):
        if blob.key not in named and now - blob.modified_at > GRACE:
            await blobs.delete(blob.key)


async def _named_pieces(session: AsyncSession) -> set[str]:
    rows = await session.execute(select(LogRow.attempt_id, LogRow.task_group, LogRow.task, LogRow.segments))
    return {
        piece_key(LogId(attempt_id=attempt_id, task_group=group, task=task), start, length)
        for attempt_id, group, task, pieces in rows
        for start, length in pieces
    }
