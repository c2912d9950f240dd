"""Use cases of resource packages and the resource groups cut from them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.check import check_group, check_package
from cluster_groups.decide.quota import Shortage, beyond_package
from cluster_groups.model.quota import (
    GpuCapacity,
    GroupConfig,
    GroupUse,
    PackageConfig,
    ResourceGroup,
    ResourcePackage,
)
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP, UsersOf, refuse_new_values, store_named
from cluster_groups.store import clusters as cluster_store
from cluster_groups.store import resources as store
from cluster_groups.tables import ResourceGroupRow, ResourcePackageRow
from kernel.actor import SYSTEM_ACTOR, Actor, Role
from kernel.clock import Clock
from kernel.errors import Conflict, Denied, Problem, pointer_to, problem, raise_problems
from kernel.events import audit
from kernel.ids import new_id
from kernel.loop import Hints
from kernel.paging import Page, PageRequest
from kernel.resources import Resources

DEFAULT = "default"


class ResourcePools:
    def __init__(self, clock: Clock, hints: Hints, backends: Collection[str], users_of_group: UsersOf) -> None:
        self._clock = clock
        self._hints = hints
        self._backends = backends
        self._users_of_group = users_of_group

    async def get_package(self, session: AsyncSession, ref: str) -> ResourcePackage:
        return store.package_of(await store.find_package(session, ref))

    async def get_group(self, session: AsyncSession, ref: str) -> ResourceGroup:
        return store.group_of(await store.find_group(session, ref))

    async def page_of_packages(
        self, session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
    ) -> Page[ResourcePackage]:
        return await store.page_of_packages(session, filters, request)

    async def page_of_groups(
        self, session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
    ) -> Page[ResourceGroup]:
        return await store.page_of_groups(session, filters, request)

    async def package_names(self, session: AsyncSession) -> set[str]:
        return await store.package_names(session)

    async def groups_by_name(self, session: AsyncSession) -> dict[str, ResourceGroup]:
        return {group.name: group for group in await store.groups(session)}

    async def use_of(self, session: AsyncSession, ref: str) -> GroupUse:
        """What the group's clusters hold of its quota now."""
        group = await self.get_group(session, ref)
        uses = await cluster_store.uses(session)
        return GroupUse(maximum=group.quota, clusters=uses.get(group.name, ()))

    async def use_of_all(self, session: AsyncSession) -> dict[str, GroupUse]:
        """By group name."""
        uses = await cluster_store.uses(session)
        return {
            group.name: GroupUse(maximum=group.quota, clusters=uses.get(group.name, ()))
            for group in await store.groups(session)
        }

    async def create_package(self, session: AsyncSession, actor: Actor, config: PackageConfig) -> ResourcePackage:
        actor.need(Role.ADMIN)
        raise_problems([*check_package(config), *self._check_backend(config)])
        return await self._store_package(session, actor, config)

    async def edit_package(
        self, session: AsyncSession, actor: Actor, ref: str, changes: Mapping[str, Any]
    ) -> ResourcePackage:
        """`changes` by the names of PackageConfig's fields."""
        actor.need(Role.ADMIN)
        row = await store.find_package(session, ref, lock=True)
        package = store.package_of(row)
        refuse_new_values(package, changes, ("name",))
        package = replace(package, **changes)
        raise_problems([*check_package(package), *self._check_backend(package)])
        raise_problems(_too_small_for(package, await store.groups(session, package=package.name)))
        self._write(row, store.package_columns(package))
        audit(session, "edit", ("resource_package", row.name), at=self._clock.now(), actor=actor.user)
        return store.package_of(row)

    async def delete_package(self, session: AsyncSession, actor: Actor, ref: str) -> None:
        actor.need(Role.ADMIN)
        row = await store.find_package(session, ref, lock=True)
        users = [group.name for group in await store.groups(session, package=row.name)]
        if users:
            raise Conflict("RESOURCE_PACKAGE_IN_USE", resource_package=row.name, used_by=users)
        await session.delete(row)
        audit(session, "delete", ("resource_package", row.name), at=self._clock.now(), actor=actor.user)

    async def create_group(self, session: AsyncSession, actor: Actor, config: GroupConfig) -> ResourceGroup:
        actor.need(Role.OPERATOR)
        raise_problems([*check_group(config), *await self._check_room(session, config)])
        return await self._store_group(session, actor, config)

    async def edit_group(
        self, session: AsyncSession, actor: Actor, ref: str, changes: Mapping[str, Any]
    ) -> ResourceGroup:
        """`changes` by the names of GroupConfig's fields. A quota below what is used ends nothing."""
        actor.need(Role.OPERATOR)
        row = await store.find_group(session, ref, lock=True)
        group = store.group_of(row)
        refuse_new_values(group, changes, ("name", "resource_package"))
        group = replace(group, **changes)
        raise_problems([*check_group(group), *await self._check_room(session, group)])
        self._write(row, store.group_columns(group))
        audit(session, "edit", ("resource_group", row.name), at=self._clock.now(), actor=actor.user)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        return store.group_of(row)

    async def delete_group(self, session: AsyncSession, actor: Actor, ref: str) -> None:
        actor.need(Role.OPERATOR)
        row = await store.find_group(session, ref, lock=True)
        users = [*await cluster_store.of_group(session, row.name), *await self._users_of_group(session, row.name)]
        if users:
            raise Conflict("RESOURCE_GROUP_IN_USE", resource_group=row.name, used_by=users)
        await session.delete(row)
        audit(session, "delete", ("resource_group", row.name), at=self._clock.now(), actor=actor.user)

    async def ensure_default(self, session: AsyncSession, capacity: Resources) -> None:
        """The pair of api.md §9, made once: only where there is no resource package at all."""
        if await store.package_names(session):
            return
        gpu = {name: GpuCapacity(count=count) for name, count in capacity.gpu.items()}
        package = PackageConfig(name=DEFAULT, cpu=capacity.cpu, memory_gib=capacity.memory_gib, gpu=gpu)
        await self._store_package(session, SYSTEM_ACTOR, package)
        group = GroupConfig(name=DEFAULT, resource_package=DEFAULT, quota=capacity)
        await self._store_group(session, SYSTEM_ACTOR, group)

    async def check_place(
        self, session: AsyncSession, actor: Actor, resource_package: str | None, resource_group: str
    ) -> list[Problem]:
        """Whether `actor` may put a cluster there (R38); no package means the group's own."""
        packages = await store.package_names(session)
        if not packages:
            raise Conflict("SERVICE_NOT_OPENED")
        if not actor.resource_packages:
            raise Denied("NOT_ALLOW_LISTED", user=actor.user)
        found = []
        if resource_package is not None and resource_package not in packages:
            found.append(_unknown("resource_package", resource_package))
        group = await store.group_named(session, resource_group)
        if group is None:
            return [*found, _unknown("resource_group", resource_group)]
        package = resource_package or group.resource_package
        if not found and not actor.may_use_package(package):
            raise Denied("RESOURCE_PACKAGE_DENIED", resource_package=package, user=actor.user)
        if not found and group.resource_package != package:
            params = {"resource_group": resource_group, "resource_package": package}
            found.append(problem("RESOURCE_GROUP_NOT_IN_PACKAGE", "/resource_group", **params))
        return found

    def _check_backend(self, config: PackageConfig) -> list[Problem]:
        if config.backend is None or config.backend in self._backends:
            return []
        available = sorted(self._backends)
        return [problem("BACKEND_NOT_AVAILABLE", "/backend", backend=config.backend, available=available)]

    async def _check_room(self, session: AsyncSession, group: GroupConfig) -> list[Problem]:
        package = await store.package_named(session, group.resource_package)
        if package is None:
            return [_unknown("resource_package", group.resource_package)]
        # The package's row is what two new groups of it would both have to pass.
        await store.find_package(session, package.id, lock=True)
        others = [one for one in await store.groups(session, package=package.name) if one.name != group.name]
        return _exceeds("/quota", package, beyond_package(package.capacity, group, others))

    async def _store_package(self, session: AsyncSession, actor: Actor, config: PackageConfig) -> ResourcePackage:
        now = self._clock.now()
        columns = store.package_columns(config)
        row = ResourcePackageRow(id=new_id("rpk"), created_at=now, created_by=actor.user, version=1, **columns)
        await store_named(session, row, "resource_package", config.name)
        audit(session, "create", ("resource_package", config.name), at=now, actor=actor.user)
        return store.package_of(row)

    async def _store_group(self, session: AsyncSession, actor: Actor, config: GroupConfig) -> ResourceGroup:
        now = self._clock.now()
        columns = store.group_columns(config)
        row = ResourceGroupRow(id=new_id("rgp"), created_at=now, created_by=actor.user, version=1, **columns)
        await store_named(session, row, "resource_group", config.name)
        audit(session, "create", ("resource_group", config.name), at=now, actor=actor.user)
        return store.group_of(row)

    def _write(self, row: ResourcePackageRow | ResourceGroupRow, columns: Mapping[str, Any]) -> None:
        for name, value in columns.items():
            setattr(row, name, value)
        row.version += 1


def _unknown(kind: str, name: str) -> Problem:
    return problem("REFERENCE_NOT_FOUND", f"/{kind}", kind=kind, ref=name)


def _too_small_for(package: ResourcePackage, groups: Sequence[ResourceGroup]) -> list[Problem]:
    found: dict[str, Problem] = {}
    for index, group in enumerate(groups):
        beyond = beyond_package(package.capacity, group, groups[:index])
        for one in _exceeds("/capacity", package, beyond):
            found.setdefault(str(one.pointer), one)
    return list(found.values())


def _exceeds(pointer: str, package: ResourcePackage, beyond: Shortage) -> list[Problem]:
    return [
        problem(
            "QUOTA_EXCEEDS_PACKAGE",
            pointer + pointer_to(*name.split(".", 1)),
            resource_package=package.name,
            resource=name,
            asked=asked,
            left=max(left, 0),
        )
        for name, (asked, left) in beyond.items()
    ]
