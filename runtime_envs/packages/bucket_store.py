"""Blobs as objects of a bucket."""

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from kernel.errors import NotFound, Unavailable
from runtime_envs.packages.base import Blob, check_key
from runtime_envs.packages.bucket import Bucket, BucketError, ObjectReader, Threads, Trouble, opened
from runtime_envs.packages.spool import in_thread, remove_orphans, spooled

PART_BYTES = 16 * 1024 * 1024
"""With the 10 000 parts S3 and COS allow, enough for 156 GiB. One part at a time is held in memory."""
_THREADS = 32
_PAGE = 1000


class BucketBlobStore:
    def __init__(self, bucket: Bucket, prefix: str, spool_dir: Path) -> None:
        """`prefix` is empty or ends in `/`: several installations may share a bucket."""
        self._bucket = bucket
        self._prefix = prefix
        self._threads = Threads(_THREADS)
        self.spool_dir = spool_dir

    async def prepare(self) -> None:
        await in_thread(self._prepare_spool)
        await self.size_bytes("ready")  # fails now where nothing could ever be kept

    async def put(self, key: str, chunks: AsyncIterable[bytes]) -> None:
        name = self._name(key)
        async with spooled(self.spool_dir, chunks) as file:
            await self._send(name, file.path)

    async def put_file(self, key: str, path: Path) -> None:
        await self._send(self._name(key), path)
        await in_thread(path.unlink)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        if end is not None and end <= start:  # no range says "none of it"
            if await self.size_bytes(key) is None:
                raise NotFound("BLOB_NOT_FOUND", key=key)
            return
        async with self._opened(key, start, end) as reader:
            if reader is not None:
                async for chunk in reader.chunks(start, end):
                    yield chunk

    async def size_bytes(self, key: str) -> int | None:
        """Asked of the list, which says when the bucket itself is missing, as a look at the object does not."""
        name = self._name(key)
        with _told(key):
            found, _ = await self._threads.run(self._bucket.listed, name, "", 1)
        return next((blob.size_bytes for blob in found if blob.key == name), None)

    async def delete(self, key: str) -> None:
        with _told(key):
            await self._threads.run(self._bucket.delete, self._name(key))

    async def find(self, prefix: str) -> AsyncIterator[Blob]:
        after, more = "", True
        while more:
            with _told(prefix):
                page, more = await self._threads.run(self._bucket.listed, self._prefix + prefix, after, _PAGE)
            for blob in page:
                yield replace(blob, key=blob.key.removeprefix(self._prefix))
                after = blob.key

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    @asynccontextmanager
    async def _opened(self, key: str, start: int, end: int | None) -> AsyncIterator[ObjectReader | None]:
        with _told(key):
            async with opened(self._bucket, self._threads, self._name(key), start, end) as reader:
                yield reader

    def _prepare_spool(self) -> None:
        self.spool_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_orphans(self.spool_dir)

    async def _send(self, name: str, path: Path) -> None:
        with _told(name), path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes <= PART_BYTES:
                await self._threads.run(self._bucket.put, name, file.read())
                return
            upload = await self._threads.run(self._bucket.begin, name)
            try:
                etags = [
                    await self._threads.run(self._send_part, name, upload, number, file.fileno())
                    for number in range(1, -(-size_bytes // PART_BYTES) + 1)
                ]
                await self._threads.run(self._bucket.complete, name, upload, etags)
            except BaseException:
                with suppress(BucketError):
                    await self._threads.run(self._bucket.abort, name, upload)
                raise

    def _send_part(self, name: str, upload: str, number: int, file: int) -> str:
        data = os.pread(file, PART_BYTES, (number - 1) * PART_BYTES)
        return self._bucket.put_part(name, upload, number, data)


@contextmanager
def _told(key: str) -> Iterator[None]:
    """A bucket's troubles as ours: they are the operator's to mend."""
    try:
        yield
    except BucketError as error:
        match error.trouble:
            case Trouble.NO_OBJECT:
                raise NotFound("BLOB_NOT_FOUND", key=key) from error
            case Trouble.NO_BUCKET:
                raise Unavailable("BLOB_BUCKET_NOT_FOUND", reason=error.reason) from error
            case Trouble.DENIED:
                raise Unavailable("BLOB_STORE_DENIED", reason=error.reason) from error
            case Trouble.CHANGED:
                raise Unavailable("BLOB_CHANGED", key=key, reason=error.reason) from error
            case Trouble.FAILED:
                raise Unavailable("BLOB_STORE_FAILED", reason=error.reason) from error
