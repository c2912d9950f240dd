"""Streams of runs: their changes of state, and a log as it grows. Both resume where a client was cut off."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fastapi.sse import ServerSentEvent
from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.schemas.runs import LogChunk, RunChange
from api.wiring import Services
from kernel.errors import InvalidInput
from kernel.events import EventRow
from rayjobs import run_store
from rayjobs.log_pages import LogPage, WhichLog, find_log, read_page
from rayjobs.model.run import RUN_FINALS
from rayjobs.run_service import LOG_LOOP, RUN_NEWS
from rayjobs.tables import RunRow

LOOK_AT_LEAST_EVERY_S = 2.0
"""A change made by another process rings no bell here."""
PAGE_BYTES = 256 * 2**10
TOLD = {"data", "offset", "next_offset"}
LATE_SEQS = 1000
LATE_FOR = timedelta(minutes=1)
"""So far below what was seen an event may still appear: its number was given out before it was committed."""
AT_ONCE = 500
MOST_TOLD = 10_000
"""Runs of which a stream remembers what it has told; one it has forgotten may be told as it was before."""
_FIRST_EPOCH = 1
_LOG_EVENT_ID = re.compile(r"(?:([1-9][0-9]{0,8})-)?([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """An offset in the log of one attempt; `epoch` is None before the first."""

    epoch: int | None
    offset: int

    @property
    def event_id(self) -> str:
        """The offset alone in a first attempt, whose log most runs have only."""
        is_first = self.epoch in {None, _FIRST_EPOCH}
        return str(self.offset) if is_first else f"{self.epoch}-{self.offset}"

    @classmethod
    def of(cls, event_id: str, asked: int | None) -> "LogPlace":
        """An offset alone belongs to the attempt that was `asked` for, if one was."""
        told = _LOG_EVENT_ID.fullmatch(event_id)
        epoch = int(told[1]) if told and told[1] else asked or _FIRST_EPOCH
        if told is None or epoch != (asked or epoch):
            raise InvalidInput("INVALID_CURSOR", pointer="/Last-Event-ID")
        return cls(epoch, int(told[2]))


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
            if place.is_news(change):
                yield ServerSentEvent(data=change, event="run", id=str(seq))
        going_on = await services.news.wait(RUN_NEWS, timeout_s=LOOK_AT_LEAST_EVERY_S)


async def follow_log(
    services: Services, run_id: str, which: WhichLog, place: LogPlace
) -> AsyncIterator[ServerSentEvent]:
    """`event: log` with data, offset and next_offset, whose id is the place after it; last `event: end`.

    Unless one attempt was asked for, each that follows the one at `place` is followed too, from its offset 0.
    """
    going_on = True
    while going_on:
        page, run = await read_on(services, run_id, replace(which, attempt=place.epoch), place.offset)
        is_last = place.epoch is None or place.epoch == run.epoch
        if place.epoch is None and run.epoch:
            place = replace(place, epoch=_FIRST_EPOCH)
        elif page.data:
            place = replace(place, offset=page.next_offset)
            chunk = LogChunk(offset=page.offset, next_offset=place.offset, data=page.data, complete=page.complete)
            yield ServerSentEvent(data=chunk.model_dump(include=TOLD), event="log", id=place.event_id)
        elif page.complete and not is_last and which.attempt is None:
            place = LogPlace((place.epoch or 0) + 1, 0)
        elif page.complete and (run.state in RUN_FINALS or not is_last):
            yield ServerSentEvent(data={"next_offset": place.offset}, event="end", id=place.event_id)
            return
        else:
            going_on = await services.news.wait(run_id, timeout_s=LOOK_AT_LEAST_EVERY_S)


async def read_on(services: Services, run_id: str, which: WhichLog, offset: int) -> tuple[LogPage, RunRow]:
    """The next page, and the run; a reader at the end of a growing log has it copied anew."""
    async with services.database.read() as session:
        run = await run_store.get_run(session, run_id)
        found = await find_log(session, run, which)
    page = await read_page(services.logs, run, found, offset=offset, limit_bytes=PAGE_BYTES)
    if not page.data and not page.complete and found is not None:
        services.hints.send_now(LOG_LOOP, found.attempt.id)
    return page, run


@dataclass(slots=True)
class _Place:
    """How far a stream has come, which of the latest events it has seen, and what it has told of each run."""

    seq: int
    seen: set[int] = field(default_factory=set)
    told: dict[str, RunChange] = field(default_factory=dict)

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

    def is_news(self, change: RunChange) -> bool:
        """Not every event of a run is one that its listeners can see."""
        is_news = self.told.pop(change.id, None) != change
        self.told[change.id] = change
        if len(self.told) > MOST_TOLD:
            del self.told[next(iter(self.told))]
        return is_news

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
