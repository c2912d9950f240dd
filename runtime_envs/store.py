"""Queries of packages and uploads; values in, values out."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from enum import Enum, auto

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.errors import NotFound, Problem
from kernel.paging import Page, PageRequest, paginate
from runtime_envs.model import Package, RayUpload
from runtime_envs.tables import PackageRow, RayUploadRow

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
