"""What lies in the entries of a ZIP: every byte is really inflated, and counted before anybody believes a header.

Inflating takes most of the time a package needs on its way in, and does not hold Python back: two threads halve it.
"""

import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

from kernel.errors import InvalidInput
from runtime_envs.archive_directory import Member, corrupt, shown
from runtime_envs.archive_entries import STORED

_THREADS = 2
_ALONE_BELOW_BYTES = 4 * 1024 * 1024
_READ_BYTES = 128 * 1024
_INFLATE_BYTES = 256 * 1024
_RATIO_FREE_BYTES = 1024 * 1024
"""Below this size one entry may be as compressible as it likes."""

Located = Sequence[tuple[Member, int]]
"""Entries, each with the offset of its data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    max_entries: int = 10_000
    max_unpacked_bytes: int = 2 * 1024**3
    max_ratio: int = 100
    """Of all that comes out to the whole archive."""
    max_entry_ratio: int = 200
    may_be_empty: bool = False


def unpack_all(file: BinaryIO, located: Located, size_bytes: int, limits: ArchiveLimits) -> int:
    """The real number of bytes; stops at the first one beyond a bound."""
    work = _Work(file, located, size_bytes, limits)
    if size_bytes < _ALONE_BELOW_BYTES:
        work.run()
    else:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="inflate") as threads:
            for done in [threads.submit(work.run) for _ in range(_THREADS)]:
                done.result()
    return work.outcome()


class _Work:
    """Entries in the order of the file, each taken by whichever thread is free."""

    def __init__(self, file: BinaryIO, located: Located, size_bytes: int, limits: ArchiveLimits) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self._limits = limits
        self._waiting = enumerate(located)
        self._lock = threading.Lock()
        self._total_bytes = 0
        self._refusals: dict[int, InvalidInput] = {}

    def run(self) -> None:
        while (taken := self._next()) is not None:
            number, (member, data_at) = taken
            try:
                self._unpack(member, data_at)
            except InvalidInput as refusal:
                self._refusals[number] = refusal

    def outcome(self) -> int:
        """Of several refusals the first in the file: those before it have been looked at to their end."""
        if self._refusals:
            raise self._refusals[min(self._refusals)]
        return self._total_bytes

    def _next(self) -> tuple[int, tuple[Member, int]] | None:
        with self._lock:
            return None if self._refusals else next(self._waiting, None)

    def _unpack(self, member: Member, data_at: int) -> None:
        crc = entry_bytes = 0
        entry_limit = max(_RATIO_FREE_BYTES, self._limits.max_entry_ratio * member.compressed_bytes)
        for chunk in self._data(member, data_at):
            crc = zlib.crc32(chunk, crc)
            entry_bytes += len(chunk)
            if entry_bytes > member.size_bytes:
                raise corrupt("size", member.name)
            if entry_bytes > entry_limit:
                raise InvalidInput("PACKAGE_RATIO", entry=shown(member.name), limit=self._limits.max_entry_ratio)
            self._count(len(chunk), member)
        if entry_bytes != member.size_bytes:
            raise corrupt("size", member.name)
        if crc != member.crc:
            raise corrupt("checksum", member.name)

    def _count(self, chunk_bytes: int, member: Member) -> None:
        with self._lock:
            self._total_bytes += chunk_bytes
            total_bytes = self._total_bytes
        if total_bytes > self._limits.max_unpacked_bytes:
            raise InvalidInput("PACKAGE_UNPACKED_TOO_LARGE", limit_bytes=self._limits.max_unpacked_bytes)
        if total_bytes > self._limits.max_ratio * self._size_bytes:
            raise InvalidInput("PACKAGE_RATIO", entry=shown(member.name), limit=self._limits.max_ratio)

    def _data(self, member: Member, data_at: int) -> Iterator[bytes]:
        chunks = self._compressed(data_at, member.compressed_bytes)
        return chunks if member.method == STORED else _inflated(chunks, member)

    def _compressed(self, at: int, left_bytes: int) -> Iterator[bytes]:
        while left_bytes:
            with self._lock:
                self._file.seek(at)
                chunk = self._file.read(min(_READ_BYTES, left_bytes))
            at += len(chunk)
            left_bytes -= len(chunk)
            yield chunk


def _inflated(chunks: Iterator[bytes], member: Member) -> Iterator[bytes]:
    """The stream must end exactly where the directory says, neither sooner nor later."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    pending = b""
    try:
        while not inflater.eof:
            pending = pending or next(chunks, b"")
            out = inflater.decompress(pending, _INFLATE_BYTES)
            if not (out or pending):
                break
            pending = inflater.unconsumed_tail
            yield out
    except zlib.error:
        raise corrupt("data", member.name) from None
    if not inflater.eof or inflater.unused_data or next(chunks, b""):
        raise corrupt("data", member.name)
