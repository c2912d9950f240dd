"""Uploads that come in pieces and go on after a cut, as the tus protocol has it (docs/decisions/0016).

Each piece is a blob, and the row says how far it is: whichever replica takes the next one, after whatever restart,
nothing that was acknowledged is sent again.
"""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor, Role
from kernel.clock import Clock
from kernel.db import Database
from kernel.errors import Conflict, InvalidInput, NotFound, TooLarge, Unavailable
from kernel.ids import new_id
from kernel.paging import Page, PageRequest
from runtime_envs import store
from runtime_envs.model import NewUpload, Upload
from runtime_envs.packages.base import BlobStore
from runtime_envs.service import PackageService

KEEP = timedelta(days=1)
"""Since the last piece that came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadLimits:
    part_bytes: int = 16 * 2**20
    """What a crash of the service can cost at most."""
    parts: int = 1000
    at_once: int = 20
    """On their way, of one user."""


class Uploads:
    def __init__(
        self, database: Database, blobs: BlobStore, clock: Clock, packages: PackageService, limits: UploadLimits
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._packages = packages
        self._limits = limits

    @property
    def most_bytes(self) -> int:
        return self._packages.most_bytes

    async def create(self, session: AsyncSession, new: NewUpload, actor: Actor) -> Upload:
        """Raises at once what the file would be refused for at its end whatever is in it."""
        actor.need(Role.SUBMITTER)
        now = self._clock.now()
        upload = Upload(
            id=new_id("upl"),
            created_at=now,
            created_by=actor.user,
            file_name=self._packages.announced(new.file_name, new.size_bytes),
            sha256=new.sha256,
            size_bytes=new.size_bytes,
            expires_at=now + KEEP,
        )
        if await store.count_uploads(session, actor.user, now) >= self._limits.at_once:
            raise Conflict("UPLOADS_TOO_MANY", limit=self._limits.at_once)
        store.add_upload(session, upload)
        return upload

    async def get(self, upload_id: str, actor: Actor) -> Upload:
        async with self._database.read() as session:
            return await store.get_upload(session, upload_id, actor.user, self._clock.now())

    async def page(self, actor: Actor, sha256: str | None, request: PageRequest) -> Page[Upload]:
        async with self._database.read() as session:
            return await store.page_of_uploads(session, actor.user, sha256, self._clock.now(), request)

    async def append(self, upload_id: str, offset_bytes: int, chunks: AsyncIterable[bytes], actor: Actor) -> Upload:
        """What came counts, also where `chunks` ends before it should: the sender asks how far it is and goes on."""
        actor.need(Role.SUBMITTER)
        upload = await self.get(upload_id, actor)
        if offset_bytes != upload.offset_bytes:
            raise _elsewhere(upload)
        body = _Body(chunks)
        while upload.left_bytes and await body.has_more():
            try:
                upload = await self._take_part(upload, body, actor)
            except Unavailable as error:
                if error.code == "DISK_FULL":  # what cannot be finished must not keep the disk full
                    await self._drop(upload)
                raise
        await _no_more(body, upload)
        return upload

    async def delete(self, upload_id: str, actor: Actor) -> None:
        await self._drop(await self.get(upload_id, actor))

    async def _take_part(self, upload: Upload, body: "_Body", actor: Actor) -> Upload:
        if len(upload.parts) >= self._limits.parts:
            raise Conflict("UPLOAD_TOO_MANY_PARTS", limit=self._limits.parts)
        key = f"uploads/{upload.id}/{new_id('part')}"
        body.taken_bytes = 0
        await self._blobs.put(key, body.part(min(self._limits.part_bytes, upload.left_bytes)))
        longer = replace(
            upload,
            offset_bytes=upload.offset_bytes + body.taken_bytes,
            parts=(*upload.parts, key),
            expires_at=self._clock.now() + KEEP,
        )
        if longer.left_bytes:
            return await self._save(longer, key)
        try:
            await _no_more(body, upload)
            package = await self._check(longer, actor)
        except BaseException:
            await self._blobs.delete(key)
            raise
        if package is None:
            await self._blobs.delete(key)
            return await self._by_another(longer, actor)
        done = await self._save(replace(longer, parts=(), package=package), key)
        await self._discard(longer.parts)
        return done

    async def _check(self, upload: Upload, actor: Actor) -> str | None:
        """As if it had come in one piece: the package it is, None when a part is not there.

        What can never be a package is gone.
        """
        incoming = self._packages.uploaded(_joined(self._blobs, upload.parts), upload.file_name, upload.sha256)
        try:
            package, _ = await self._packages.take(incoming, actor)
        except (InvalidInput, TooLarge):
            await self._drop(upload)
            raise
        except NotFound as error:
            if error.code != "BLOB_NOT_FOUND":
                raise
            return None
        return package.id

    async def _by_another(self, upload: Upload, actor: Actor) -> Upload:
        """Who completes an upload deletes its parts; otherwise what is missing stays missing."""
        found = await self.get(upload.id, actor)
        if found.package is not None:
            return found
        if found.version != upload.version:
            raise _elsewhere(upload)
        await self._drop(upload)
        raise NotFound("UPLOAD_PART_LOST", upload=upload.id)

    async def _save(self, upload: Upload, key: str) -> Upload:
        """The blob `key` stays when this raises: the row may name it all the same."""
        async with self._database.write() as session:
            is_saved = await store.save_upload(session, upload)
        if not is_saved:  # another connection was faster: what it sent counts
            await self._blobs.delete(key)
            raise _elsewhere(upload)
        return replace(upload, version=upload.version + 1)

    async def _drop(self, upload: Upload) -> None:
        async with self._database.write() as session:
            await store.delete_upload(session, upload.id)
        await self._discard(upload.parts)

    async def _discard(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._blobs.delete(key)


class _Body:
    """A stream that is read in parts of a given length."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(chunks)
        self._held = b""
        self.taken_bytes = 0

    async def has_more(self) -> bool:
        while not self._held:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                return False
            self._held = chunk
        return True

    async def part(self, limit_bytes: int) -> AsyncIterator[bytes]:
        while self.taken_bytes < limit_bytes and await self.has_more():
            left_bytes = limit_bytes - self.taken_bytes
            chunk, self._held = self._held[:left_bytes], self._held[left_bytes:]
            self.taken_bytes += len(chunk)
            yield chunk


async def _no_more(body: _Body, upload: Upload) -> None:
    if await body.has_more():
        raise TooLarge("UPLOAD_TOO_LONG", size_bytes=upload.size_bytes)


async def _joined(blobs: BlobStore, keys: Sequence[str]) -> AsyncIterator[bytes]:
    for key in keys:
        async for chunk in blobs.read(key):
            yield chunk


def _elsewhere(upload: Upload) -> Conflict:
    return Conflict("UPLOAD_OFFSET_WRONG", upload=upload.id)
