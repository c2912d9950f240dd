"""What can be done with packages: take in, look at, hand out, delete. And the uploads of Ray's own client."""

import asyncio
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor, Role
from kernel.clock import Clock
from kernel.db import Database
from kernel.errors import Conflict, InvalidInput, Malformed, NotFound, TooLarge
from kernel.events import audit
from kernel.ids import new_id
from kernel.paging import Page, PageRequest
from runtime_envs import store
from runtime_envs.archive import ArchiveEntry, ArchiveReport, inspect_archive
from runtime_envs.archive_data import ArchiveLimits
from runtime_envs.model import UPLOAD_SOURCE, Incoming, Package, PackageLimits, RayUpload
from runtime_envs.packages.base import BlobStore, one_chunk, read_all
from runtime_envs.packages.spool import Spooled, in_thread, spooled

_INSPECTIONS_AT_ONCE = 2
_RAY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,254}")
_RAY_ARCHIVES = (".zip", ".whl", ".tar.gz", ".tgz", ".tar.xz")
_TOUCH_AFTER = timedelta(hours=1)


class PackageUse(Protocol):
    async def __call__(self, session: AsyncSession, package_id: str) -> list[str]:
        """Names of the jobs that need this package."""
        ...


class PackageService:
    def __init__(
        self, database: Database, blobs: BlobStore, clock: Clock, limits: PackageLimits, in_use: PackageUse
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._limits = limits
        self._in_use = in_use
        self._inspector = _Inspector()

    @property
    def most_bytes(self) -> int:
        """Of an upload."""
        return self._limits.max_upload_bytes

    async def upload(
        self, chunks: AsyncIterable[bytes], file_name: str | None, actor: Actor, *, dry_run: bool = False
    ) -> tuple[Package, bool]:
        """The package, and whether it is new: the same bytes are the same package, whoever sends them."""
        return await self.take(self.uploaded(chunks, file_name), actor, dry_run=dry_run)

    def uploaded(self, chunks: AsyncIterable[bytes], file_name: str | None, sha256: str | None = None) -> Incoming:
        """From somebody's own disk, in one piece or in many."""
        return Incoming(
            chunks=chunks,
            file_name=file_name,
            source=UPLOAD_SOURCE,
            limit_bytes=self._limits.max_upload_bytes,
            archive=self._limits.archive,
            pointer="/file",
            sha256=sha256,
        )

    def announced(self, file_name: str | None, size_bytes: int) -> str:
        """Raises what such a file would be refused for whatever is in it; gives the name it is kept under."""
        with _about("/file"):
            if size_bytes > self._limits.max_upload_bytes:
                raise TooLarge("PACKAGE_TOO_LARGE", limit_bytes=self._limits.max_upload_bytes)
            if size_bytes == 0:
                raise InvalidInput("PACKAGE_NOT_ZIP", reason="content")
            return _file_name(file_name)

    async def take(self, incoming: Incoming, actor: Actor, *, dry_run: bool = False) -> tuple[Package, bool]:
        """Wherever it comes from."""
        actor.need(Role.SUBMITTER)
        with _about(incoming.pointer):
            name = _file_name(incoming.file_name)
            async with spooled(self._blobs.spool_dir, incoming.chunks, limit_bytes=incoming.limit_bytes) as file:
                if incoming.sha256 not in {None, file.sha256}:
                    raise InvalidInput("UPLOAD_CHANGED", sha256=file.sha256, announced=incoming.sha256)
                known = await self._find(file.sha256)
                if known:
                    return known, False
                report = await self._inspector.inspect(file.path, incoming.archive)
                package = self._package(file, report, actor, file_name=name, source=incoming.source)
                if dry_run:
                    return package, True
                return await self._publish(package, report, file.path)

    async def get(self, package_id: str) -> Package:
        async with self._database.read() as session:
            return await store.get_package(session, package_id)

    async def list(self, filters: Mapping[str, str | None], request: PageRequest) -> Page[Package]:
        async with self._database.read() as session:
            return await store.page_of_packages(session, filters, request)

    async def entries(self, package_id: str) -> Sequence[ArchiveEntry]:
        package = await self.get(package_id)
        rows = json.loads(await read_all(self._blobs, package.entries_key))
        return [ArchiveEntry(name=name, size_bytes=size, compressed_bytes=packed) for name, size, packed in rows]

    def content(self, package: Package, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._blobs.read(package.blob_key, start, end)

    async def delete(self, package_id: str, actor: Actor, *, dry_run: bool = False) -> None:
        async with self._database.write() as session:
            package = await store.get_package(session, package_id, lock=store.Lock.SOLE)
            actor.need_owner(package.created_by)
            jobs = await self._in_use(session, package_id)
            if jobs:
                raise Conflict("PACKAGE_IN_USE", jobs=jobs)
            if dry_run:
                return
            await store.delete_package(session, package_id)
            audit(session, "delete", ("package", package_id), at=self._clock.now(), actor=actor.user)
        await self._discard(package)

    def _package(
        self, file: Spooled, report: ArchiveReport, actor: Actor, *, file_name: str, source: Mapping[str, Any]
    ) -> Package:
        return Package(
            id=new_id("pkg"),
            sha256=file.sha256,
            size_bytes=file.size_bytes,
            unpacked_bytes=report.unpacked_bytes,
            entry_count=len(report.entries),
            file_name=file_name,
            source=source,
            warnings=report.warnings,
            created_at=self._clock.now(),
            created_by=actor.user,
        )

    async def _find(self, sha256: str) -> Package | None:
        async with self._database.read() as session:
            return await store.find_package(session, sha256)

    async def _publish(self, package: Package, report: ArchiveReport, path: Path) -> tuple[Package, bool]:
        entries = json.dumps([astuple(entry) for entry in report.entries]).encode()
        await self._blobs.put(package.entries_key, one_chunk(entries))
        await self._blobs.put_file(package.blob_key, path)
        try:
            async with self._database.write() as session:
                store.add_package(session, package)
                audit(session, "create", ("package", package.id), at=package.created_at, actor=package.created_by)
        except IntegrityError:
            winner = await self._find(package.sha256)
            if winner is None:
                raise
            await self._discard(package)
            return winner, False
        return package, True

    async def _discard(self, package: Package) -> None:
        await self._blobs.delete(package.blob_key)
        await self._blobs.delete(package.entries_key)


class RayUploads:
    """Kept byte for byte and by name, as Ray's own dashboard does, but for each user apart."""

    def __init__(self, database: Database, blobs: BlobStore, clock: Clock, limits: PackageLimits) -> None:
        self._database = database
        self._blobs = blobs
        self._clock = clock
        self._limits = replace(limits, archive=replace(limits.archive, may_be_empty=True))
        self._inspector = _Inspector()

    async def put(self, owner: str, name: str, chunks: AsyncIterable[bytes]) -> RayUpload:
        if not _RAY_NAME.fullmatch(name) or not name.endswith(_RAY_ARCHIVES):
            raise Malformed("RAY_UPLOAD_NAME_INVALID", name=name[:255])
        async with spooled(self._blobs.spool_dir, chunks, limit_bytes=self._limits.max_upload_bytes) as file:
            if name.endswith((".zip", ".whl")):
                await self._inspector.inspect(file.path, self._limits.archive)
            upload = RayUpload(
                owner=owner,
                name=name,
                sha256=file.sha256,
                size_bytes=file.size_bytes,
                blob_key=f"ray-uploads/{file.sha256}.{new_id('upl')}",
                last_used_at=self._clock.now(),
            )
            await self._blobs.put_file(upload.blob_key, file.path)
        try:
            await self._record(upload)
        except IntegrityError:  # the first upload of this name came twice at once; now its row is there
            await self._record(upload)
        return upload

    async def has(self, owner: str, name: str) -> bool:
        return await self._use(owner, name) is not None

    async def open(self, owner: str, name: str) -> tuple[RayUpload, AsyncIterator[bytes]]:
        upload = await self._use(owner, name)
        if upload is None:
            raise NotFound("RAY_UPLOAD_NOT_FOUND", name=name)
        return upload, self._blobs.read(upload.blob_key)

    async def _use(self, owner: str, name: str) -> RayUpload | None:
        now = self._clock.now()
        async with self._database.read() as session:
            upload = await store.find_ray_upload(session, owner, name)
        if upload and now - upload.last_used_at > _TOUCH_AFTER:
            async with self._database.write() as session:
                await store.touch_ray_upload(session, owner, name, now)
        return upload

    async def _record(self, upload: RayUpload) -> None:
        async with self._database.write() as session:
            await store.put_ray_upload(session, upload)


class _Inspector:
    """A few inspections at a time: each may keep a thread busy for seconds."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_INSPECTIONS_AT_ONCE)

    async def inspect(self, path: Path, limits: ArchiveLimits) -> ArchiveReport:
        async with self._slots:
            return await in_thread(_inspect, path, limits)


def _inspect(path: Path, limits: ArchiveLimits) -> ArchiveReport:
    with path.open("rb") as file:
        return inspect_archive(file, limits)


@contextmanager
def _about(pointer: str) -> Iterator[None]:
    """Refusals point at where the file was named (api.md §4)."""
    try:
        yield
    except (InvalidInput, TooLarge) as error:
        error.pointer = error.pointer or pointer
        raise


def _file_name(given: str | None) -> str:
    """The last part of what the client calls its file, fit to be shown."""
    last = re.split(r"[/\\]", given or "package.zip")[-1]
    name = "".join(c for c in last if c.isprintable())
    if not name.lower().endswith(".zip"):
        raise InvalidInput("PACKAGE_NOT_ZIP", reason="name")
    return name if len(name) <= 255 else name[:251] + ".zip"
