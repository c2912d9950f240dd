"""A log by the page: which attempt's, from which offset, in whole characters."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.errors import NotFound
from rayjobs.log_text import whole_characters
from rayjobs.logs import LogKeeper
from rayjobs.model.job import MAIN_GROUP
from rayjobs.model.run import RUN_FINALS, AttemptState
from rayjobs.tables import AttemptRow, RunRow

LONGEST_CHARACTER = 4
"""Bytes of UTF-8; a smaller page could hold nothing and never end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WhichLog:
    """No task: the driver, which for a plain job is its one task. `attempt` is an epoch; None: the latest."""

    task_group: str | None = None
    task: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPage:
    offset: int
    next_offset: int
    data: str
    complete: bool


async def read_page(
    keeper: LogKeeper, run: RunRow, attempt: AttemptRow | None, *, offset: int, limit_bytes: int
) -> LogPage:
    """To be called with no session open: the keeper has its own, and a blob is no matter of the database."""
    if attempt is None:
        return LogPage(offset=offset, next_offset=offset, data="", complete=run.state in RUN_FINALS)
    chunk = await keeper.read(attempt.id, offset=offset, limit_bytes=max(limit_bytes, LONGEST_CHARACTER))
    data = whole_characters(chunk.data, is_end=chunk.complete)
    return LogPage(
        offset=chunk.offset,
        next_offset=chunk.offset + len(data),
        data=data.decode("utf-8", errors="replace"),
        # Of an attempt long over the log may have had its time: nothing more will come of it.
        complete=chunk.complete or (attempt.state == AttemptState.ENDED and not chunk.data),
    )


async def find_attempt(session: AsyncSession, run: RunRow, which: WhichLog) -> AttemptRow | None:
    """None while there is no attempt at all."""
    if which.task_group not in {None, MAIN_GROUP} or which.task not in {None, 0}:
        raise NotFound("NOT_FOUND", kind="task", ref=f"{which.task_group or MAIN_GROUP}/{which.task or 0}")
    statement = select(AttemptRow).where(AttemptRow.run_id == run.id).order_by(AttemptRow.epoch.desc())
    if which.attempt is not None:
        statement = statement.where(AttemptRow.epoch == which.attempt)
    attempt = (await session.scalars(statement.limit(1))).one_or_none()
    if attempt is None and which.attempt is not None:
        raise NotFound("NOT_FOUND", kind="attempt", ref=str(which.attempt))
    return attempt
