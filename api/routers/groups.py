"""`/cluster-groups` and their policies (api.md §6)."""

from typing import Annotated

from fastapi import Path, Response

from api.deps import Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.base import PageOut, page_out
from api.schemas.groups import GroupCreate, GroupEdit, GroupOut, PolicyPut, PolicyRevisionOut

router = v1_router("cluster groups")


@router.post("/cluster-groups", status_code=201, response_model=GroupOut)
async def create_group(body: GroupCreate, call: Creating) -> Response:
    async with call.write() as session:
        group = await call.services.groups.create(session, call.actor, body.name, body.description, body.draft())
        return call.created(GroupOut.of(group), f"/cluster-groups/{group.id}", revision=group.revision)


@router.get("/cluster-groups")
async def list_groups(
    call: Reading, page: Paging, name: str | None = None, created_by: str | None = None
) -> PageOut[GroupOut]:
    filters = {"name": name, "created_by": created_by}
    async with call.read() as session:
        return page_out(await call.services.groups.page(session, filters, page), GroupOut.of)


@router.get("/cluster-groups/{ref}", response_model=GroupOut)
async def get_group(ref: str, call: Reading) -> Response:
    async with call.read() as session:
        group = await call.services.groups.get(session, ref)
        return call.answer(GroupOut.of(group), revision=group.revision)


@router.patch("/cluster-groups/{ref}", response_model=GroupOut)
async def edit_group(ref: str, body: GroupEdit, call: Changing) -> Response:
    async with call.write() as session:
        groups = call.services.groups
        if_match = call.expected_revision
        group = await groups.edit(session, call.actor, ref, body.changes(), if_match=if_match)
        return call.answer(GroupOut.of(group), revision=group.revision)


@router.delete("/cluster-groups/{ref}", status_code=204)
async def delete_group(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.groups.delete(session, call.actor, ref, if_match=call.expected_revision)


@router.get("/cluster-groups/{ref}/policy", response_model=PolicyRevisionOut)
async def get_policy(ref: str, call: Reading) -> Response:
    async with call.read() as session:
        revision = await call.services.groups.revision(session, ref)
        return call.answer(PolicyRevisionOut.of(revision), revision=revision.revision)


@router.put("/cluster-groups/{ref}/policy", response_model=PolicyRevisionOut)
async def put_policy(ref: str, body: PolicyPut, call: Changing) -> Response:
    """The same content makes no new revision."""
    async with call.write() as session:
        groups = call.services.groups
        draft, if_match = body.draft(body.comment), call.expected_revision
        revision = await groups.put_policy(session, call.actor, ref, draft, if_match=if_match)
        return call.answer(PolicyRevisionOut.of(revision), revision=revision.revision)


@router.get("/cluster-groups/{ref}/policy/revisions")
async def list_policy_revisions(ref: str, call: Reading, page: Paging) -> PageOut[PolicyRevisionOut]:
    async with call.read() as session:
        return page_out(await call.services.groups.page_of_revisions(session, ref, page), PolicyRevisionOut.of)


@router.get("/cluster-groups/{ref}/policy/revisions/{number}")
async def get_policy_revision(ref: str, number: Annotated[int, Path(le=2**31 - 1)], call: Reading) -> PolicyRevisionOut:
    async with call.read() as session:
        return PolicyRevisionOut.of(await call.services.groups.revision(session, ref, number))
