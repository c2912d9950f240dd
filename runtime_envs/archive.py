"""May this ZIP be stored and unpacked on a node (requirements §4.1)? It is refused or warned of, never rewritten.

Works on a seekable file in bounded memory. Every byte is really inflated: what headers claim is checked, not believed.
"""

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kernel.errors import InvalidInput, Problem
from runtime_envs.archive_directory import (
    END_SIGNATURE,
    LOCAL_SIGNATURE,
    Member,
    corrupt,
    locate_data,
    read_directory,
    shown,
)
from runtime_envs.archive_entries import STORED, check_entry, check_together, warnings_about

_READ_BYTES = 128 * 1024
_INFLATE_BYTES = 256 * 1024
_RATIO_FREE_BYTES = 1024 * 1024
"""Below this size one entry may be as compressible as it likes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    max_entries: int = 10_000
    max_unpacked_bytes: int = 2 * 1024**3
    max_ratio: int = 100
    """Of all that comes out to the whole archive."""
    max_entry_ratio: int = 200
    may_be_empty: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveEntry:
    name: str
    size_bytes: int
    compressed_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveReport:
    entries: tuple[ArchiveEntry, ...]
    unpacked_bytes: int
    warnings: tuple[Problem, ...]


def inspect_archive(file: BinaryIO, limits: ArchiveLimits) -> ArchiveReport:
    """Raises `InvalidInput` with a `PACKAGE_…` code. Cheap rules come first, data is read last."""
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(4) not in (LOCAL_SIGNATURE, END_SIGNATURE):
        raise InvalidInput("PACKAGE_NOT_ZIP", reason="content")
    directory = read_directory(file, size_bytes, max_entries=limits.max_entries)
    members = directory.members
    for member in members:
        check_entry(member)
    check_together(members)
    located = locate_data(file, directory)
    if all(member.is_folder for member in members) and not limits.may_be_empty:
        raise InvalidInput("PACKAGE_EMPTY")
    return ArchiveReport(
        entries=tuple(
            ArchiveEntry(name=member.name, size_bytes=member.size_bytes, compressed_bytes=member.compressed_bytes)
            for member in members
        ),
        unpacked_bytes=_unpack_all(file, located, size_bytes, limits),
        warnings=warnings_about(members),
    )


def _unpack_all(file: BinaryIO, located: list[tuple[Member, int]], size_bytes: int, limits: ArchiveLimits) -> int:
    """The real number of bytes; stops at the first one beyond a bound."""
    total_bytes = 0
    for member, data_at in located:
        file.seek(data_at)
        crc = entry_bytes = 0
        entry_limit = max(_RATIO_FREE_BYTES, limits.max_entry_ratio * member.compressed_bytes)
        for chunk in _data(file, member):
            crc = zlib.crc32(chunk, crc)
            entry_bytes += len(chunk)
            total_bytes += len(chunk)
            if entry_bytes > member.size_bytes:
                raise corrupt("size", member.name)
            if entry_bytes > entry_limit:
                raise InvalidInput("PACKAGE_RATIO", entry=shown(member.name), limit=limits.max_entry_ratio)
            if total_bytes > limits.max_unpacked_bytes:
                raise InvalidInput("PACKAGE_UNPACKED_TOO_LARGE", limit_bytes=limits.max_unpacked_bytes)
            if total_bytes > limits.max_ratio * size_bytes:
                raise InvalidInput("PACKAGE_RATIO", entry=shown(member.name), limit=limits.max_ratio)
        if entry_bytes != member.size_bytes:
            raise corrupt("size", member.name)
        if crc != member.crc:
            raise corrupt("checksum", member.name)
    return total_bytes


def _data(file: BinaryIO, member: Member) -> Iterator[bytes]:
    chunks = _compressed(file, member.compressed_bytes)
    return chunks if member.method == STORED else _inflated(chunks, member)


def _compressed(file: BinaryIO, left: int) -> Iterator[bytes]:
    while left:
        chunk = file.read(min(_READ_BYTES, left))
        left -= len(chunk)
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
