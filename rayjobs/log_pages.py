"""A log by the page: which task's of which attempt, from which offset, in whole characters."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from kernel.errors import InvalidInput, NotFound
from rayjobs import run_store
from rayjobs.log_text import whole_characters
from rayjobs.logs import LogId, LogKeeper
from rayjobs.model.job import MAIN_GROUP
from rayjobs.model.run import RUN_FINALS, AttemptState
from rayjobs.tables import AttemptRow, RunRow

LONGEST_CHARACTER = 4
"""Bytes of UTF-8; a smaller page could hold nothing and never end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WhichLog:
    """No group and no task: the driver, which for a plain job is its one task.

    A group without a task means its first, a task without a group one of the only group. `attempt` is an epoch; None:
    the latest.
    """

    task_group: str | None = None
    task: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundLog:
    log: LogId
    attempt: AttemptRow


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPage:
    offset: int
    next_offset: int
    data: str
    complete: bool
    note: str | None = None
    """Why the rest is missing, when it is."""


async def read_page(
    keeper: LogKeeper, run: RunRow, found: FoundLog | None, *, offset: int, limit_bytes: int
) -> LogPage:
    """To be called with no session open: the keeper has its own, and a blob is no matter of the database."""
    if found is None:
        return LogPage(offset=offset, next_offset=offset, data="", complete=run.state in RUN_FINALS)
    chunk = await keeper.read(found.log, offset=offset, limit_bytes=max(limit_bytes, LONGEST_CHARACTER))
    data = whole_characters(chunk.data, is_end=chunk.complete)
    return LogPage(
        offset=chunk.offset,
        next_offset=chunk.offset + len(data),
        data=data.decode("utf-8", errors="replace"),
        # Of an attempt long over the log may have had its time: nothing more will come of it.
        complete=chunk.complete or (found.attempt.state == AttemptState.ENDED and not chunk.data),
        note=chunk.note if chunk.complete else None,
    )


async def find_log(session: AsyncSession, run: RunRow, which: WhichLog) -> FoundLog | None:
    """None while there is no attempt at all."""
    group, task = _task_of(run, which)
    if which.attempt is None:
        attempt = await run_store.latest_attempt(session, run.id)
    else:
        attempt = await run_store.attempt_of(session, run.id, which.attempt)
    if attempt is None:
        return None
    return FoundLog(log=LogId(attempt_id=attempt.id, task_group=group, task=task), attempt=attempt)


def _task_of(run: RunRow, which: WhichLog) -> tuple[str, int]:
    """As logs are kept: with no group the driver's."""
    if which.task_group is None and which.task is None:
        return "", 0
    counts: dict[str, int] = dict(run.task_groups) or {MAIN_GROUP: 1}
    if which.task_group is None and len(counts) > 1:
        raise InvalidInput("TASK_GROUP_REQUIRED", pointer="/task_group", task_groups=list(counts))
    group, task = which.task_group or next(iter(counts)), which.task or 0
    if task >= counts.get(group, 0):
        raise NotFound("NOT_FOUND", kind="task", ref=f"{group}/{task}")
    return (group if run.task_groups else ""), task
