"""Logs outlive their cluster: copied by byte offset while they grow, kept in pieces in the blob store, read by offset.

Offsets are those of the log as people see it. A log longer than `max_bytes` keeps its first and its last half.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, replace
from weakref import WeakValueDictionary

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import Endpoint
from kernel.db import Database, insert_last
from kernel.errors import NotFound
from kernel.loop import Hints
from kernel.together import LoadedTogether
from rayjobs.gateway.base import JobGateway
from rayjobs.log_text import drop_ray_lines
from rayjobs.model.run import run_of
from rayjobs.run_service import RUN_NEWS
from rayjobs.tables import LogRow
from runtime_envs.packages.base import BlobStore, one_chunk, read_all

LOGS = "logs/"
READ_BYTES = 4 * 2**20
PIECE_BYTES = 256 * 2**10
"""Smaller pieces at the end are joined with what follows, so that a slow log does not become thousands of blobs."""

Piece = tuple[int, int]
"""Offset and length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogId:
    """One log of an attempt: its driver's, or with a group's name that of one task of its gang."""

    attempt_id: str
    task_group: str = ""
    task: int = 0

    @property
    def is_drivers(self) -> bool:
        return not self.task_group

    @property
    def path(self) -> str:
        """Below the log folder of the node it is written on; the driver's is named by Ray."""
        if self.is_drivers:
            return f"job-driver-{self.attempt_id}.log"
        return f"{runner_folder(self.attempt_id)}/{self.task_group}-{self.task}.log"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the bytes of a log are: the node agent that serves them."""

    log: LogId
    endpoint: Endpoint
    agent_address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """How far a log has been copied (`tables.LogRow` as a value)."""

    is_new: bool = True
    """Nothing of it was stored yet."""
    source_bytes: int = 0
    size_bytes: int = 0
    pieces: tuple[Piece, ...] = ()
    header_done: bool = False
    complete: bool = False
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    new_bytes: int
    complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    data: bytes
    offset: int
    """Where `data` begins; later than asked for when the middle of a long log was dropped."""
    next_offset: int
    complete: bool
    note: str | None = None


def runner_folder(submission_id: str) -> str:
    """Where the runner keeps what it writes, on each node, below the log folder."""
    return f"muster/{submission_id}"


class LogKeeper:
    def __init__(
        self, database: Database, blobs: BlobStore, gateway: JobGateway, hints: Hints, *, max_bytes: int
    ) -> None:
        self._hints = hints
        self._database = database
        self._blobs = blobs
        self._gateway = gateway
        self._max_bytes = max_bytes
        self._rows = LoadedTogether(self._load)
        self._locks: WeakValueDictionary[LogId, asyncio.Lock] = WeakValueDictionary()
        """Each lasts as long as somebody holds it or waits for it."""

    async def copy(self, source: Source, *, is_over: bool) -> Copied:
        """Copy what is new; the log can become complete only when `is_over`. Raises GatewayError."""
        log = source.log
        async with self._locks.setdefault(log, asyncio.Lock()):
            stored = await self._rows.get(log) or Stored()
            if stored.complete:
                return Copied(new_bytes=0, complete=True)
            data = await self._gateway.read_log(
                source.endpoint, source.agent_address, log.path, offset=stored.source_bytes, limit_bytes=READ_BYTES
            )
            is_end = is_over and len(data) < READ_BYTES
            text, taken, header_done = data, len(data), True
            if log.is_drivers:
                text, taken, header_done = drop_ray_lines(data, header_done=stored.header_done, is_end=is_end)
            if not taken and not is_end:
                return Copied(new_bytes=0, complete=False)
            stored = replace(stored, source_bytes=stored.source_bytes + taken, header_done=header_done, complete=is_end)
            await self._append(log, stored, text)
        return Copied(new_bytes=len(text), complete=is_end)

    async def close(self, log: LogId, *, text: bytes = b"", note: str | None = None) -> None:
        """End it here: after `text`, when nobody ever wrote one, or with a `note` why the rest is missing."""
        async with self._locks.setdefault(log, asyncio.Lock()):
            stored = await self._rows.get(log) or Stored()
            if not stored.complete:
                await self._append(log, replace(stored, complete=True, note=note), text)

    async def read(self, log: LogId, *, offset: int, limit_bytes: int) -> Chunk:
        try:
            return await self._read(log, offset, limit_bytes)
        except NotFound:  # the last piece was joined with a new one between the look at the row and at the blob
            return await self._read(log, offset, limit_bytes)

    async def _read(self, log: LogId, offset: int, limit_bytes: int) -> Chunk:
        async with self._database.read() as session:
            row = await session.get(LogRow, _key(log))
        if row is None:
            return Chunk(data=b"", offset=offset, next_offset=offset, complete=False)
        pieces = [(start, length) for start, length in row.segments if start + length > offset]
        if not pieces:
            end = max(offset, row.size_bytes)
            return Chunk(data=b"", offset=end, next_offset=end, complete=row.complete, note=row.note)
        begin = max(offset, pieces[0][0])
        data = b"".join([part async for part in self._run_of(log, pieces, begin, limit_bytes)])
        end = begin + len(data)
        complete = row.complete and end >= row.size_bytes
        return Chunk(data=data, offset=begin, next_offset=end, complete=complete, note=row.note)

    async def _run_of(self, log: LogId, pieces: list[Piece], begin: int, limit_bytes: int) -> AsyncIterator[bytes]:
        """Bytes from `begin` on without a gap, at most `limit_bytes`."""
        position, left = begin, limit_bytes
        for start, length in pieces:
            if start > position or left <= 0:
                return
            skip = position - start
            wanted = min(length - skip, left)
            async for part in self._blobs.read(piece_key(log, start, length), skip, skip + wanted):
                yield part
            position, left = position + wanted, left - wanted

    async def _load(self, logs: Sequence[LogId]) -> dict[LogId, Stored]:
        columns = tuple_(LogRow.attempt_id, LogRow.task_group, LogRow.task)
        async with self._database.read() as session:
            rows = await session.scalars(select(LogRow).where(columns.in_(list(map(_key, logs)))))
        return {
            LogId(attempt_id=row.attempt_id, task_group=row.task_group, task=row.task): _stored(row) for row in rows
        }

    async def _append(self, log: LogId, stored: Stored, text: bytes) -> None:
        """Blob first, then the row that names it, then the blobs it replaces: a crash leaves only a stray blob."""
        obsolete: list[Piece] = []
        pieces = list(stored.pieces)
        if text:
            if pieces and pieces[-1][1] < PIECE_BYTES and sum(pieces[-1]) == stored.size_bytes:
                start, length = pieces.pop()
                old = await read_all(self._blobs, piece_key(log, start, length))
                obsolete.append((start, length))
                text = old + text
            else:
                start = stored.size_bytes
            await self._blobs.put(piece_key(log, start, len(text)), one_chunk(text))
            pieces.append((start, len(text)))
            size = start + len(text)
            pieces, dropped = keep_ends(pieces, size, self._max_bytes)
            obsolete += dropped
            stored = replace(stored, pieces=tuple(pieces), size_bytes=size)
        await self._save(log, stored)
        for start, length in obsolete:
            await self._blobs.delete(piece_key(log, start, length))

    async def _save(self, log: LogId, stored: Stored) -> None:
        values = {
            "source_bytes": stored.source_bytes,
            "size_bytes": stored.size_bytes,
            "segments": [list(piece) for piece in stored.pieces],
            "header_done": stored.header_done,
            "complete": stored.complete,
            "note": stored.note,
        }

        async def save(session: AsyncSession) -> None:
            if stored.is_new:
                insert_last(session, LogRow, **asdict(log), **values)
            else:
                row = await session.get_one(LogRow, _key(log))
                for name, value in values.items():
                    setattr(row, name, value)
            self._hints.send(session, RUN_NEWS, run_of(log.attempt_id))

        await self._database.write_together(save)  # a gang has hundreds of logs


def _stored(row: LogRow) -> Stored:
    return Stored(
        is_new=False,
        source_bytes=row.source_bytes,
        size_bytes=row.size_bytes,
        pieces=tuple((start, length) for start, length in row.segments),
        header_done=row.header_done,
        complete=row.complete,
        note=row.note,
    )


def keep_ends(pieces: list[Piece], size_bytes: int, max_bytes: int) -> tuple[list[Piece], list[Piece]]:
    """(kept, dropped): whole pieces between the first and the last half of `max_bytes` go."""
    half = max_bytes // 2
    dropped = [(start, length) for start, length in pieces if start >= half and start + length <= size_bytes - half]
    return [piece for piece in pieces if piece not in dropped], dropped


def piece_key(log: LogId, start: int, length: int) -> str:
    """Where one piece of a log is kept."""
    whose = "driver" if log.is_drivers else f"{log.task_group}-{log.task}"
    return f"{LOGS}{run_of(log.attempt_id)}/{log.attempt_id}/{whose}/{start}-{length}"


def _key(log: LogId) -> tuple[str, str, int]:
    return log.attempt_id, log.task_group, log.task
