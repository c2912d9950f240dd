"""May this ZIP be stored and unpacked on a node (requirements §4.1)? It is refused or warned of, never rewritten.

Works on a seekable file in bounded memory. Every byte is really inflated: what headers claim is checked, not believed.
"""

import io
from dataclasses import dataclass
from typing import BinaryIO

from kernel.errors import InvalidInput, Problem
from runtime_envs.archive_data import ArchiveLimits, unpack_all
from runtime_envs.archive_directory import END_SIGNATURE, LOCAL_SIGNATURE, locate_data, read_directory
from runtime_envs.archive_entries import check_entry, check_together, warnings_about


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
        unpacked_bytes=unpack_all(file, located, size_bytes, limits),
        warnings=warnings_about(members),
    )
