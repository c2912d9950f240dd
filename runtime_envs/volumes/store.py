"""Queries on volumes, and the way between their rows and values."""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.errors import Conflict, NotFound, Problem, problem
from kernel.paging import Page, PageRequest, paginate
from runtime_envs.volumes.available import WantedMount
from runtime_envs.volumes.model import Mount, Volume, VolumeType
from runtime_envs.volumes.tables import VolumeRow

SORTABLE = {"created_at": VolumeRow.created_at, "name": VolumeRow.name}


async def insert(session: AsyncSession, volume: Volume) -> None:
    session.add(
        VolumeRow(
            id=volume.id,
            created_at=volume.created_at,
            created_by=volume.created_by,
            name=volume.name,
            type=volume.type,
            source=dict(volume.source),
            credential=volume.credential,
        )
    )
    try:
        await session.flush()
    except IntegrityError as error:
        raise Conflict("NAME_TAKEN", pointer="/name", kind="volume", name=volume.name) from error


async def find(session: AsyncSession, ref: str, *, lock: bool = False) -> VolumeRow:
    """By id or name. `lock` waits for those who are about to mount it, and has others wait."""
    statement = select(VolumeRow).where((VolumeRow.id == ref) | (VolumeRow.name == ref))
    row = await session.scalar(statement.with_for_update() if lock else statement)
    if row is None:
        raise NotFound("NOT_FOUND", kind="volume", ref=ref)
    return row


async def page(session: AsyncSession, request: PageRequest, *, kind: VolumeType | None = None) -> Page[Volume]:
    statement = select(VolumeRow) if kind is None else select(VolumeRow).where(VolumeRow.type == kind)
    rows = await paginate(session, statement, request, sortable=SORTABLE, key=VolumeRow.id)
    return Page(items=[volume_of(row) for row in rows.items], next_cursor=rows.next_cursor)


async def named(session: AsyncSession, names: Collection[str], *, lock: bool = False) -> dict[str, Volume]:
    """Those of them that there are; `lock` keeps them from being deleted before this unit of work is over."""
    askable = [name for name in names if "\0" not in name]  # PostgreSQL takes no such text, and no volume has it
    if not askable:
        return {}
    statement = select(VolumeRow).where(VolumeRow.name.in_(askable)).order_by(VolumeRow.name)
    rows = await session.scalars(statement.with_for_update(read=True) if lock else statement)
    return {row.name: volume_of(row) for row in rows}


async def wanted(session: AsyncSession, mounts: Sequence[Mount], *, lock: bool = False) -> list[WantedMount | None]:
    """In the order of `mounts`; None where there is no such volume."""
    volumes = await named(session, {mount.volume for mount in mounts}, lock=lock)
    return [
        WantedMount(mount=mount, type=volumes[mount.volume].type) if mount.volume in volumes else None
        for mount in mounts
    ]


def missing(mounts: Sequence[Mount], found: Sequence[WantedMount | None], pointer: str) -> list[Problem]:
    """`found` is what `wanted` gave for them."""
    return [
        problem("REFERENCE_NOT_FOUND", f"{pointer}/{index}/volume", kind="volume", ref=mount.volume)
        for index, (mount, one) in enumerate(zip(mounts, found, strict=True))
        if one is None
    ]


async def of_credential(session: AsyncSession, name: str) -> list[str]:
    """Names of the volumes that are opened with this credential."""
    return sorted(await session.scalars(select(VolumeRow.name).where(VolumeRow.credential == name)))


def volume_of(row: VolumeRow) -> Volume:
    return Volume(
        id=row.id,
        name=row.name,
        type=VolumeType(row.type),
        source=row.source,
        credential=row.credential,
        created_at=row.created_at,
        created_by=row.created_by,
    )
