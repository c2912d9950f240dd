"""`/resource-packages` and `/resource-groups` (api.md §7)."""

from fastapi import Response

from api.deps import Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.base import PageOut, page_out
from api.schemas.resources import (
    GroupUseOut,
    ResourceGroupCreate,
    ResourceGroupEdit,
    ResourceGroupOut,
    ResourcePackageCreate,
    ResourcePackageEdit,
    ResourcePackageOut,
)

router = v1_router("resources")


@router.post("/resource-packages", status_code=201, response_model=ResourcePackageOut)
async def create_package(body: ResourcePackageCreate, call: Creating) -> Response:
    async with call.write() as session:
        package = await call.services.pools.create_package(session, call.actor, body.config())
        return call.created(ResourcePackageOut.of(package), f"/resource-packages/{package.id}")


@router.get("/resource-packages")
async def list_packages(call: Reading, page: Paging, name: str | None = None) -> PageOut[ResourcePackageOut]:
    async with call.read() as session:
        found = await call.services.pools.page_of_packages(session, {"name": name}, page)
        return page_out(found, ResourcePackageOut.of)


@router.get("/resource-packages/{ref}")
async def get_package(ref: str, call: Reading) -> ResourcePackageOut:
    async with call.read() as session:
        return ResourcePackageOut.of(await call.services.pools.get_package(session, ref))


@router.patch("/resource-packages/{ref}", response_model=ResourcePackageOut)
async def edit_package(ref: str, body: ResourcePackageEdit, call: Changing) -> Response:
    async with call.write() as session:
        package = await call.services.pools.edit_package(session, call.actor, ref, body.changes())
        return call.answer(ResourcePackageOut.of(package))


@router.delete("/resource-packages/{ref}", status_code=204)
async def delete_package(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.pools.delete_package(session, call.actor, ref)


@router.post("/resource-groups", status_code=201, response_model=ResourceGroupOut)
async def create_group(body: ResourceGroupCreate, call: Creating) -> Response:
    async with call.write() as session:
        group = await call.services.pools.create_group(session, call.actor, body.config())
        return call.created(ResourceGroupOut.of(group), f"/resource-groups/{group.id}")


@router.get("/resource-groups")
async def list_groups(
    call: Reading, page: Paging, name: str | None = None, resource_package: str | None = None
) -> PageOut[ResourceGroupOut]:
    filters = {"name": name, "resource_package": resource_package}
    async with call.read() as session:
        return page_out(await call.services.pools.page_of_groups(session, filters, page), ResourceGroupOut.of)


@router.get("/resource-groups/{ref}")
async def get_group(ref: str, call: Reading) -> ResourceGroupOut:
    async with call.read() as session:
        return ResourceGroupOut.of(await call.services.pools.get_group(session, ref))


@router.patch("/resource-groups/{ref}", response_model=ResourceGroupOut)
async def edit_group(ref: str, body: ResourceGroupEdit, call: Changing) -> Response:
    async with call.write() as session:
        group = await call.services.pools.edit_group(session, call.actor, ref, body.changes())
        return call.answer(ResourceGroupOut.of(group))


@router.delete("/resource-groups/{ref}", status_code=204)
async def delete_group(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.pools.delete_group(session, call.actor, ref)


@router.get("/resource-groups/{ref}/usage")
async def get_usage(ref: str, call: Reading) -> GroupUseOut:
    async with call.read() as session:
        return GroupUseOut.of(await call.services.pools.use_of(session, ref))
