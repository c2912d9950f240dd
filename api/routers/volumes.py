"""`/volumes`: made and deleted, never edited."""

from typing import Annotated

from fastapi import Query, Response

from api.deps import Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.base import PageOut, page_out
from api.schemas.volumes import VolumeCreate, VolumeOut
from runtime_envs.volumes.model import VolumeType

router = v1_router("volumes")


@router.post("/volumes", status_code=201, response_model=VolumeOut)
async def create_volume(body: VolumeCreate, call: Creating) -> Response:
    async with call.write() as session:
        volume = await call.services.volumes.create(session, call.actor, body.spec())
        return call.created(VolumeOut.of(volume), f"/volumes/{volume.id}")


@router.get("/volumes")
async def list_volumes(
    call: Reading, page: Paging, kind: Annotated[VolumeType | None, Query(alias="type")] = None
) -> PageOut[VolumeOut]:
    async with call.read() as session:
        return page_out(await call.services.volumes.page(session, page, kind), VolumeOut.of)


@router.get("/volumes/{ref}")
async def get_volume(ref: str, call: Reading) -> VolumeOut:
    async with call.read() as session:
        return VolumeOut.of(await call.services.volumes.get(session, ref))


@router.delete("/volumes/{ref}", status_code=204)
async def delete_volume(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.volumes.delete(session, call.actor, ref)
