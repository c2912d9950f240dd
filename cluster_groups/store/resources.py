"""Queries on resource packages and resource groups, and the way between rows and values."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.quota import GpuCapacity, GroupConfig, PackageConfig, ResourceGroup, ResourcePackage
from cluster_groups.store.lookup import by_ref, filtered, one
from cluster_groups.tables import ResourceGroupRow, ResourcePackageRow
from kernel.paging import Page, PageRequest, paginate

PACKAGES_SORTABLE = {"created_at": ResourcePackageRow.created_at, "name": ResourcePackageRow.name}
GROUPS_SORTABLE = {"created_at": ResourceGroupRow.created_at, "name": ResourceGroupRow.name}

_PACKAGE = TypeAdapter(ResourcePackage)
_GROUP = TypeAdapter(ResourceGroup)
_GROUP_CONFIG = TypeAdapter(GroupConfig)
_GPU = TypeAdapter(Mapping[str, GpuCapacity])


async def find_package(session: AsyncSession, ref: str, *, lock: bool = False) -> ResourcePackageRow:
    return await by_ref(session, select(ResourcePackageRow), ref, "resource_package", lock=lock)


async def find_group(session: AsyncSession, ref: str, *, lock: bool = False) -> ResourceGroupRow:
    return await by_ref(session, select(ResourceGroupRow), ref, "resource_group", lock=lock)


async def package_named(session: AsyncSession, name: str) -> ResourcePackage | None:
    row = await one(session, select(ResourcePackageRow).where(ResourcePackageRow.name == name))
    return None if row is None else package_of(row)


async def group_named(session: AsyncSession, name: str, *, lock: bool = False) -> ResourceGroup | None:
    row = await one(session, select(ResourceGroupRow).where(ResourceGroupRow.name == name), lock=lock)
    return None if row is None else group_of(row)


async def package_names(session: AsyncSession) -> set[str]:
    return set(await session.scalars(select(ResourcePackageRow.name)))


async def groups(session: AsyncSession, *, package: str | None = None) -> list[ResourceGroup]:
    """Of one package, or all."""
    statement = select(ResourceGroupRow).order_by(ResourceGroupRow.name)
    if package is not None:
        statement = statement.where(ResourceGroupRow.resource_package == package)
    return [group_of(row) for row in await session.scalars(statement)]


async def page_of_packages(
    session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
) -> Page[ResourcePackage]:
    statement = filtered(select(ResourcePackageRow), filters)
    rows = await paginate(session, statement, request, sortable=PACKAGES_SORTABLE, key=ResourcePackageRow.id)
    return Page(items=[package_of(row) for row in rows.items], next_cursor=rows.next_cursor)


async def page_of_groups(
    session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
) -> Page[ResourceGroup]:
    statement = filtered(select(ResourceGroupRow), filters)
    rows = await paginate(session, statement, request, sortable=GROUPS_SORTABLE, key=ResourceGroupRow.id)
    return Page(items=[group_of(row) for row in rows.items], next_cursor=rows.next_cursor)


def package_of(row: ResourcePackageRow) -> ResourcePackage:
    values = {column.key: getattr(row, column.key) for column in row.__table__.columns}
    return _PACKAGE.validate_python({**values, **row.capacity})


def group_of(row: ResourceGroupRow) -> ResourceGroup:
    return _GROUP.validate_python({column.key: getattr(row, column.key) for column in row.__table__.columns})


def package_columns(config: PackageConfig) -> dict[str, Any]:
    gpu = _GPU.dump_python(config.gpu, mode="json")
    capacity = {"cpu": config.cpu, "memory_gib": config.memory_gib, "gpu": gpu}
    return {"name": config.name, "capacity": capacity, "backend": config.backend, "namespace": config.namespace}


def group_columns(config: GroupConfig) -> dict[str, Any]:
    return dict(_GROUP_CONFIG.dump_python(config, mode="json"))
