"""A stream on its way in: written to a file, hashed and counted as it comes, gone at the end unless someone took it."""

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, ParamSpec, Self, TypeVar

import psutil

from kernel.errors import TooLarge, Unavailable
from kernel.ids import new_id

Params = ParamSpec("Params")
Result = TypeVar("Result")

_BLOCK_BYTES = 1024 * 1024
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, kw_only=True, slots=True)
class Spooled:
    path: Path
    sha256: str
    size_bytes: int


@asynccontextmanager
async def spooled(
    folder: Path, chunks: AsyncIterable[bytes], *, limit_bytes: int | None = None
) -> AsyncIterator[Spooled]:
    """Raises `TooLarge("PACKAGE_TOO_LARGE")` at the first byte above `limit_bytes`."""
    path = folder / f"{os.getpid()}-{new_id('spool')}"
    try:
        with disk_full_is_unavailable(), path.open("xb") as file:
            sha256, size_bytes = await _write(file, chunks, limit_bytes)
        yield Spooled(path=path, sha256=sha256, size_bytes=size_bytes)
    finally:
        await in_thread(path.unlink, missing_ok=True)


def remove_orphans(folder: Path) -> None:
    """Delete the files of processes that have died; of those with our number only one lives, and has none yet."""
    for path in folder.iterdir():
        pid = path.name.partition("-")[0]
        if pid.isdigit() and (int(pid) == os.getpid() or not psutil.pid_exists(int(pid))):
            path.unlink(missing_ok=True)


@contextmanager
def disk_full_is_unavailable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise Unavailable("DISK_FULL") from error
        raise


async def in_thread(function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
    return await to_its_end(asyncio.to_thread(function, *args, **kwargs))


async def to_its_end(work: Awaitable[Result]) -> Result:
    """Waits for it even when cancelled: nobody closes a file under a thread that uses it."""
    work = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


async def _write(file: BinaryIO, chunks: AsyncIterable[bytes], limit_bytes: int | None) -> tuple[str, int]:
    """A block is written and hashed while the next one comes."""
    digest = hashlib.sha256()
    size_bytes = held_bytes = 0
    held: list[bytes] = []

    def write(block: bytes) -> None:
        file.write(block)
        digest.update(block)

    async with _OneBehind() as behind:
        async for chunk in chunks:
            size_bytes += len(chunk)
            if limit_bytes is not None and size_bytes > limit_bytes:
                raise TooLarge("PACKAGE_TOO_LARGE", limit_bytes=limit_bytes)
            held.append(chunk)
            held_bytes += len(chunk)
            if held_bytes >= _BLOCK_BYTES:
                await behind.do(partial(write, b"".join(held)))
                held, held_bytes = [], 0
        await behind.do(partial(write, b"".join(held)))
    return digest.hexdigest(), size_bytes


class _OneBehind:
    """One call at a time in a thread, each begun when the one before has ended. None outlives the block."""

    def __init__(self) -> None:
        self._call: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._end()
        except OSError:
            if kind is None:  # else what ended the block is told
                raise

    async def do(self, call: Callable[[], None]) -> None:
        await self._end()
        self._call = asyncio.ensure_future(asyncio.to_thread(call))

    async def _end(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            await to_its_end(call)
