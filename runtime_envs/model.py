"""Packages as values: a job's ZIP, and what Ray's own client has uploaded."""

from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kernel.errors import Problem
from runtime_envs.archive_data import ArchiveLimits

UPLOAD_SOURCE: Mapping[str, Any] = {"type": "upload"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageLimits:
    max_upload_bytes: int = 104_857_600
    """100 MiB inclusive (A22), as in Ray's own dashboard."""
    archive: ArchiveLimits = field(default_factory=ArchiveLimits)
    max_object_bytes: int = 2 * 1024**3
    """Of a package from object storage; Ray reads it whole into memory on every node."""
    object_archive: ArchiveLimits = field(default_factory=lambda: ArchiveLimits(max_unpacked_bytes=20 * 1024**3))


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """A file on its way to become a package, and the field that refusals of it point at."""

    chunks: AsyncIterable[bytes]
    file_name: str | None
    source: Mapping[str, Any]
    limit_bytes: int
    archive: ArchiveLimits
    pointer: str
    sha256: str | None = None
    """What its sender says it is; None: he does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One immutable ZIP, never rewritten."""

    id: str
    sha256: str
    size_bytes: int
    unpacked_bytes: int
    entry_count: int
    file_name: str
    source: Mapping[str, Any]
    warnings: tuple[Problem, ...]
    created_at: datetime
    created_by: str

    # The id is in the keys, so that no key is ever used twice: what has lost its row can be deleted without asking
    # whether someone is storing the same bytes again right now.
    @property
    def blob_key(self) -> str:
        return f"packages/{self.sha256}.{self.id}.zip"

    @property
    def entries_key(self) -> str:
        return f"packages/{self.sha256}.{self.id}.entries.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RayUpload:
    """Bytes the Ray client has put under a name of its choice, seen by their owner only: the name proves nothing."""

    owner: str
    name: str
    sha256: str
    size_bytes: int
    blob_key: str
    last_used_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class NewUpload:
    file_name: str | None
    size_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file that comes in pieces, until it is a package. Its owner's only."""

    id: str
    created_at: datetime
    created_by: str
    version: int = 1
    file_name: str
    sha256: str | None
    size_bytes: int
    offset_bytes: int = 0
    """What has come and is kept. All of it only once it is a package: the last piece counts when it has become one."""
    parts: tuple[str, ...] = ()
    """Keys of the pieces, in order."""
    expires_at: datetime
    package: str | None = None

    @property
    def left_bytes(self) -> int:
        return self.size_bytes - self.offset_bytes
