"""Where bytes are kept: packages and run logs, on a directory, S3 or COS, all behind one small protocol."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

_KEY = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,254}(/[a-z0-9_-][a-z0-9._-]{0,254})*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    key: str
    size_bytes: int
    modified_at: datetime


class BlobStore(Protocol):
    """Whole blobs by key: lower-case letters, digits, `._-`, `/` between parts, no part starting with a dot.

    No key may be the folder of another one. A blob is there completely and durably, or not at all.
    Raises `Unavailable`, and leaves nothing behind, when there is no room or the store does not do what it should.
    """

    spool_dir: Path
    """A local folder for files on their way in; `put_file` takes them from here at no cost where that can be."""

    async def prepare(self) -> None:
        """Before anything else: make the folders, remove what a crash has left half done."""
        ...

    async def put(self, key: str, chunks: AsyncIterable[bytes]) -> None:
        """Store what `chunks` yields, in place of what was there, if anything. Nothing is changed when it raises."""
        ...

    async def put_file(self, key: str, path: Path) -> None:
        """Like `put`, from a file in `spool_dir`, which is gone afterwards."""
        ...

    def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Bytes [start, end), cut at the blob's end. Raises `NotFound("BLOB_NOT_FOUND")` at the first step.

        All of them are of the one blob that was there then, or it raises: never fewer, never some of the next one.
        """
        ...

    async def size_bytes(self, key: str) -> int | None:
        """None: there is no such blob."""
        ...

    async def delete(self, key: str) -> None:
        """Also when there is none."""
        ...

    def find(self, prefix: str) -> AsyncIterator[Blob]:
        """All blobs whose keys start with `prefix`, in no order; those that come or go meanwhile may be missed."""
        ...


def check_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a blob key: {key!r}")
    return key


async def one_chunk(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def read_all(blobs: BlobStore, key: str) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(key)])
