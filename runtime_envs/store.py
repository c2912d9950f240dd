"""Queries of packages and of both kinds of uploads; values in, values out."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from enum import Enum, auto

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.db import guarded_update
from kernel.errors import NotFound, Problem
from kernel.paging import Page, PageRequest, paginate
from runtime_envs.model import Package, RayUpload, Upload
from runtime_envs.tables import PackageRow, RayUploadRow, UploadRow

_SORTABLE = {
    "created_at": PackageRow.created_at,
    "file_name": PackageRow.file_name,
    "size_bytes": PackageRow.size_bytes,
}


class Lock(Enum):
    SHARED = auto()
    SOLE = auto()


def add_package(session: AsyncSession, package: Package) -> None:
    session.add(PackageRow(**asdict(package)))


async def get_package(session: AsyncSession, package_id: str, *, lock: Lock | None = None) -> Package:
    """With a lock the package stays as it is until the transaction ends: SHARED to refer to it, SOLE to delete it."""
    with_lock = None if lock is None else {"read": lock is Lock.SHARED}
    row = await session.get(PackageRow, package_id, with_for_update=with_lock)
    if row is None:
        raise NotFound("NOT_FOUND", kind="package", ref=package_id)
    return _package(row)


async def find_package(session: AsyncSession, sha256: str) -> Package | None:
    row = await session.scalar(select(PackageRow).where(PackageRow.sha256 == sha256))
    return None if row is None else _package(row)


async def page_of_packages(
    session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
) -> Page[Package]:
    given = {name: value for name, value in filters.items() if value is not None}
    statement = select(PackageRow).filter_by(**given)
    rows = await paginate(session, statement, request, sortable=_SORTABLE, key=PackageRow.id)
    return Page(items=[_package(row) for row in rows.items], next_cursor=rows.next_cursor)


async def delete_package(session: AsyncSession, package_id: str) -> None:
    await session.execute(delete(PackageRow).where(PackageRow.id == package_id))


async def package_keys(session: AsyncSession) -> set[str]:
    packages = [_package(row) for row in await session.scalars(select(PackageRow))]
    return {key for package in packages for key in (package.blob_key, package.entries_key)}


def add_upload(session: AsyncSession, upload: Upload) -> None:
    session.add(UploadRow(**{**asdict(upload), "parts": list(upload.parts)}))


async def get_upload(session: AsyncSession, upload_id: str, owner: str, now: datetime) -> Upload:
    """Of other people's nobody is told that they exist."""
    row = await session.get(UploadRow, upload_id)
    if row is None or row.created_by != owner or row.expires_at <= now:
        raise NotFound("UPLOAD_NOT_FOUND", upload=upload_id)
    return _upload(row)


async def page_of_uploads(
    session: AsyncSession, owner: str, sha256: str | None, now: datetime, request: PageRequest
) -> Page[Upload]:
    """Those that are on their way."""
    statement = select(UploadRow).where(*_on_their_way(owner, now))
    if sha256 is not None:
        statement = statement.where(UploadRow.sha256 == sha256)
    sortable = {"created_at": UploadRow.created_at}
    rows = await paginate(session, statement, request, sortable=sortable, key=UploadRow.id)
    return Page(items=[_upload(row) for row in rows.items], next_cursor=rows.next_cursor)


async def count_uploads(session: AsyncSession, owner: str, now: datetime) -> int:
    statement = select(func.count()).select_from(UploadRow).where(*_on_their_way(owner, now))
    return (await session.execute(statement)).scalar_one()


async def save_upload(session: AsyncSession, upload: Upload) -> bool:
    """False: somebody has changed it since it was read."""
    return await guarded_update(
        session,
        UploadRow,
        upload.id,
        upload.version,
        offset_bytes=upload.offset_bytes,
        parts=list(upload.parts),
        expires_at=upload.expires_at,
        package=upload.package,
    )


async def delete_upload(session: AsyncSession, upload_id: str) -> None:
    await session.execute(delete(UploadRow).where(UploadRow.id == upload_id))


async def forget_uploads(session: AsyncSession, now: datetime) -> None:
    await session.execute(delete(UploadRow).where(UploadRow.expires_at <= now))


async def upload_keys(session: AsyncSession) -> set[str]:
    return {key for parts in await session.scalars(select(UploadRow.parts)) for key in parts}


async def put_ray_upload(session: AsyncSession, upload: RayUpload) -> None:
    await session.merge(RayUploadRow(**asdict(upload)))


async def find_ray_upload(session: AsyncSession, owner: str, name: str) -> RayUpload | None:
    row = await session.get(RayUploadRow, (owner, name))
    return None if row is None else _ray_upload(row)


async def touch_ray_upload(session: AsyncSession, owner: str, name: str, now: datetime) -> None:
    same = (RayUploadRow.owner == owner, RayUploadRow.name == name)
    await session.execute(update(RayUploadRow).where(*same).values(last_used_at=now))


async def forget_ray_uploads(session: AsyncSession, unused_since: datetime) -> None:
    await session.execute(delete(RayUploadRow).where(RayUploadRow.last_used_at < unused_since))


async def ray_upload_keys(session: AsyncSession) -> set[str]:
    return set(await session.scalars(select(RayUploadRow.blob_key)))


def _on_their_way(owner: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return UploadRow.created_by == owner, UploadRow.package.is_(None), UploadRow.expires_at > now


def _package(row: PackageRow) -> Package:
    return Package(
        id=row.id,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        unpacked_bytes=row.unpacked_bytes,
        entry_count=row.entry_count,
        file_name=row.file_name,
        source=row.source,
        warnings=tuple(Problem(**warning) for warning in row.warnings),
        created_at=row.created_at,
        created_by=row.created_by,
    )


def _ray_upload(row: RayUploadRow) -> RayUpload:
    return RayUpload(
        owner=row.owner,
        name=row.name,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        blob_key=row.blob_key,
        last_used_at=row.last_used_at,
    )


def _upload(row: UploadRow) -> Upload:
    return Upload(
        id=row.id,
        created_at=row.created_at,
        created_by=row.created_by,
        version=row.version,
        file_name=row.file_name,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        offset_bytes=row.offset_bytes,
        parts=tuple(row.parts),
        expires_at=row.expires_at,
        package=row.package,
    )
