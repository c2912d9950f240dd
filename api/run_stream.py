"""Streams of runs: their changes of state, and a log as it grows. Both resume where a client was cut off."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fastapi.sse import ServerSentEvent
from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.runs import LogChunk, RunChange
from api.wiring import Services
from kernel.events import EventRow
from rayjobs import run_store
from rayjobs.log_pages import LogPage, WhichLog, find_attempt, read_page
from rayjobs.model.run import RUN_FINALS
from rayjobs.run_service import LOG_LOOP, RUN_NEWS
from rayjobs.tables import RunRow

LOOK_AT_LEAST_EVERY_S = 2.0
"""A change made by another process rings no bell here."""
PAGE_BYTES = 256 * 2**10


LATE_SEQS = 1000
LATE_FOR = timedelta(minutes=1)
"""So far below what was seen an event may still appear: its number was given out before it was committed."""
AT_ONCE = 500


async def follow_changes(services: Services, since: int | None) -> AsyncIterator[ServerSentEvent]:
    """Events after the number `since`, or from now on.

    A client that comes again may be told once more what it has been told within the last minute.
    """
    async with services.database.read() as session:
        place = await _begin(session, since)
    going_on = True
    while going_on:
        async with services.database.read() as session:
            news = await place.advance(session, services.clock.now())
        for seq, run in news:
            change = RunChange(
                id=run.id,
                job=run.job_name,
                state=run.state,
                condition=run.condition["code"] if run.condition else None,
                end=run.end["code"] if run.end else None,
            )
            yield ServerSentEvent(data=change, event="run", id=str(seq))
        going_on = await services.news.wait(RUN_NEWS, timeout_s=LOOK_AT_LEAST_EVERY_S)


async def follow_log(services: Services, run_id: str, which: WhichLog, offset: int) -> AsyncIterator[ServerSentEvent]:
    """`event: log` with data, offset and next_offset, whose id is next_offset; last `event: end`."""
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
        services.hints.send_now(LOG_LOOP, attempt.id)
    return page, run.state in RUN_FINALS


@dataclass(slots=True)
class _Place:
    """How far a stream has come, and which of the latest events it has seen."""

    seq: int
    seen: set[int] = field(default_factory=set)

    async def advance(self, session: AsyncSession, now: datetime) -> list[tuple[int, RunRow]]:
        """Each run that has something new, once, in the order of its latest event, with where to resume after it."""
        statement = (
            select(EventRow.seq, EventRow.target_id)
            .where(EventRow.seq > self.seq - LATE_SEQS, or_(EventRow.seq > self.seq, EventRow.at > now - LATE_FOR))
            .order_by(EventRow.seq)
            .limit(LATE_SEQS + AT_ONCE)
        )
        before = self.seq
        latest = {target: seq for seq, target in await session.execute(statement) if self._is_new(seq)}
        runs = await session.scalars(select(RunRow).where(RunRow.id.in_(latest)))
        in_order = sorted((latest[run.id], run.id, run) for run in runs)
        self.seen = {seq for seq in self.seen if seq > self.seq - LATE_SEQS}
        return [(max(before, seq), run) for seq, _, run in in_order]

    def _is_new(self, seq: int) -> bool:
        is_new = seq not in self.seen
        self.seen.add(seq)
        self.seq = max(self.seq, seq)
        return is_new


async def _begin(session: AsyncSession, since: int | None) -> _Place:
    if since is not None:
        return _Place(since)
    last = await session.scalar(select(func.max(EventRow.seq))) or 0
    latest = select(EventRow.seq).where(EventRow.seq > last - LATE_SEQS, EventRow.seq <= last)
    return _Place(last, set(await session.scalars(latest)))
