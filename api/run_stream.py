"""Streams of runs: their changes of state, and a log as it grows. Both resume where a client was cut off."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.runs import LogChunk, RunChange
from api.wiring import Services
from kernel.errors import InvalidInput
from kernel.events import EventRow
from rayjobs import run_store
from rayjobs.log_pages import LogPage, WhichLog, find_attempt, read_page
from rayjobs.model.run import RUN_FINALS
from rayjobs.run_service import RUN_NEWS
from rayjobs.tables import RunRow

LOOK_AT_LEAST_EVERY_S = 2.0
"""A change made by another process rings no bell here."""
PAGE_BYTES = 256 * 2**10


@dataclass(frozen=True, slots=True)
class Changes:
    """Events after this sequence number; None: from now on."""

    seq: int | None

    @classmethod
    def after(cls, last_event_id: str | None) -> "Changes":
        return cls(_number(last_event_id) if last_event_id is not None else None)


async def follow_changes(services: Services, changes: Changes) -> AsyncIterator[ServerSentEvent]:
    seq = changes.seq
    going_on = True
    while going_on:
        async with services.database.read() as session:
            if seq is None:
                seq = await session.scalar(select(func.max(EventRow.seq))) or 0
            rows = await _changed_since(session, seq)
        for last, run in rows:
            change = RunChange(
                id=run.id,
                job=run.job_name,
                state=run.state,
                condition=run.condition["code"] if run.condition else None,
                end=run.end["code"] if run.end else None,
            )
            yield ServerSentEvent(data=change, event="run", id=str(last))
            seq = max(seq, last)
        going_on = await services.news.wait(RUN_NEWS, timeout_s=LOOK_AT_LEAST_EVERY_S)


async def follow_log(
    services: Services, run_id: str, which: WhichLog, last_event_id: str | None
) -> AsyncIterator[ServerSentEvent]:
    """`event: log` with data, offset and next_offset, whose id is next_offset; last `event: end`."""
    offset = _number(last_event_id or "0")
    going_on = True
    while going_on:
        page, is_over = await read_on(services, run_id, which, offset)
        if page.data:
            offset = page.next_offset
            chunk = LogChunk(offset=page.offset, next_offset=offset, data=page.data, complete=page.complete)
            yield ServerSentEvent(data=chunk.model_dump(exclude={"complete"}), event="log", id=str(offset))
            continue
        if page.complete and is_over:
            yield ServerSentEvent(data={"next_offset": offset}, event="end", id=str(offset))
            return
        going_on = await services.news.wait(run_id, timeout_s=LOOK_AT_LEAST_EVERY_S)


async def read_on(services: Services, run_id: str, which: WhichLog, offset: int) -> tuple[LogPage, bool]:
    """The next page and whether the run is over; a reader at the end of a growing log has it copied anew."""
    async with services.database.read() as session:
        run = await run_store.get_run(session, run_id)
        attempt = await find_attempt(session, run, which)
    page = await read_page(services.logs, run, attempt, offset=offset, limit_bytes=PAGE_BYTES)
    if not page.data and not page.complete and attempt is not None:
        services.hints.send_now("logs", attempt.id)
    return page, run.state in RUN_FINALS


async def _changed_since(session: AsyncSession, seq: int) -> list[tuple[int, RunRow]]:
    """Each run that has something new, once, in the order of its latest event."""
    last = func.max(EventRow.seq).label("last")
    changed = select(EventRow.target_id, last).where(EventRow.seq > seq).group_by(EventRow.target_id).subquery()
    statement = select(changed.c.last, RunRow).join(RunRow, RunRow.id == changed.c.target_id).order_by(changed.c.last)
    return [(number, run) for number, run in await session.execute(statement.limit(500))]


def _number(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInput("INVALID_CURSOR", pointer="/Last-Event-ID")
    return int(text)
