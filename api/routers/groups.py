"""`/cluster-groups` and their policies (api.md §6)."""

import asyncio
from typing import Annotated

from fastapi import Path, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api import timeline
from api.deps import Call, Changing, Creating, Paging, Reading, Replacing
from api.edge import v1_router
from api.schemas.base import PageOut, page_out, warnings_out
from api.schemas.decisions import DecisionOut
from api.schemas.groups import GroupCreate, GroupEdit, GroupOut, PolicyPut, PolicyRevisionOut, Restore
from api.schemas.runs import MAX_NUMBER, EventOut
from api.schemas.simulation import Simulate, SimulationOut
from api.texts import say
from cluster_groups.check_policy import warnings_about
from cluster_groups.model.group import ClusterGroup, PolicyRevision
from kernel.actor import Role
from rayjobs.decisions import page_of_decisions
from rayjobs.explain import load_admission
from rayjobs.what_if import Supposition, sample_of, what_if

router = v1_router("cluster groups")

Number = Annotated[int, Path(le=MAX_NUMBER)]


@router.post("/cluster-groups", status_code=201, response_model=GroupOut)
async def create_group(body: GroupCreate, call: Creating) -> Response:
    async with call.write() as session:
        group = await call.services.groups.create(session, call.actor, body.name, body.description, body.draft())
        return call.created(_with_warnings(call, group), f"/cluster-groups/{group.id}", revision=group.revision)


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
        return call.answer(_with_warnings(call, group), revision=group.revision)


@router.delete("/cluster-groups/{ref}", status_code=204)
async def delete_group(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.groups.delete(session, call.actor, ref, if_match=call.expected_revision)


@router.get("/cluster-groups/{ref}/events")
async def list_group_events(ref: str, call: Reading, page: Paging) -> PageOut[EventOut]:
    async with call.read() as session:
        group = await call.services.groups.get(session, ref)
        return page_out(await timeline.list_events(session, group.id, page), EventOut.of)


@router.get("/cluster-groups/{ref}/decisions")
async def list_group_decisions(ref: str, call: Reading, page: Paging) -> PageOut[DecisionOut]:
    """Of all its runs, the latest first."""
    async with call.read() as session:
        group = await call.services.groups.get(session, ref)
        found = await page_of_decisions(session, group.name, page)
        return page_out(found, lambda row: DecisionOut.of(row.decision, call.language))


@router.get("/cluster-groups/{ref}/policy", response_model=PolicyRevisionOut)
async def get_policy(ref: str, call: Reading) -> Response:
    async with call.read() as session:
        return await _answer(call, session, ref, await call.services.groups.revision(session, ref))


@router.put("/cluster-groups/{ref}/policy", response_model=PolicyRevisionOut)
async def put_policy(ref: str, body: PolicyPut, call: Changing) -> Response:
    """The same content makes no new revision, unless failback is manual and there is a comment."""
    async with call.write() as session:
        groups = call.services.groups
        draft, if_match = body.draft(), call.expected_revision
        revision = await groups.put_policy(session, call.actor, ref, draft, if_match=if_match)
        return await _answer(call, session, ref, revision)


@router.get("/cluster-groups/{ref}/policy/revisions")
async def list_policy_revisions(ref: str, call: Reading, page: Paging) -> PageOut[PolicyRevisionOut]:
    async with call.read() as session:
        found = await call.services.groups.page_of_revisions(session, ref, page)
        changes = await call.services.groups.changes(session, ref, found.items)
        return page_out(found, lambda one: PolicyRevisionOut.of(one, changes[one.revision]))


@router.get("/cluster-groups/{ref}/policy/revisions/{number}", response_model=PolicyRevisionOut)
async def get_policy_revision(ref: str, number: Number, call: Reading) -> Response:
    async with call.read() as session:
        return await _answer(call, session, ref, await call.services.groups.revision(session, ref, number))


@router.post("/cluster-groups/{ref}/policy/revisions/{number}/restore", response_model=PolicyRevisionOut)
async def restore_policy_revision(ref: str, number: Number, call: Replacing, body: Restore | None = None) -> Response:
    """A new revision with the content of an earlier one; none if that is what there is already, as with an edit."""
    comment = (body and body.comment) or say("POLICY_RESTORED", {"revision": number}, call.language).detail
    async with call.write() as session:
        groups, if_match = call.services.groups, call.expected_revision
        revision = await groups.restore(session, call.actor, ref, number, comment=comment, if_match=if_match)
        return await _answer(call, session, ref, revision)


@router.post("/cluster-groups/{ref}/simulate")
async def simulate(ref: str, body: Simulate, call: Reading) -> SimulationOut:
    """The decision a run would get, and what becomes of the runs that wait in the group; nothing is stored.

    Anybody may ask about the policy as it is, at any time; a draft is for those who may make it the policy.
    """
    services, now = call.services, call.services.clock.now()
    draft = body.policy.draft() if body.policy else None
    if draft is not None:
        call.actor.need(Role.OPERATOR)
    async with call.read() as session:
        group = await services.groups.get(session, ref)
        if draft is not None:
            group = await services.groups.drafted(session, group, draft, inside="/policy")
        spec = await sample_of(session, services.jobs, body.job, body.needs())
        snapshot = await load_admission(session, services.fleet)
    supposed = Supposition(group=group, spec=spec, actor=call.actor, at=body.at or now)
    told = await asyncio.to_thread(what_if, snapshot, supposed, now)  # three looks at all that waits
    return SimulationOut.of_simulation(told, call.language, is_draft=draft is not None)


async def _answer(call: Call, session: AsyncSession, ref: str, revision: PolicyRevision) -> Response:
    group = await call.services.groups.get(session, ref)
    changes = await call.services.groups.changes(session, ref, [revision])
    out = PolicyRevisionOut.of(revision, changes[revision.revision])
    out.warnings = warnings_out(warnings_about(revision, group.name, call.services.clock.now()), call.language)
    return call.answer(out, revision=revision.revision)


def _with_warnings(call: Call, group: ClusterGroup) -> GroupOut:
    out = GroupOut.of(group)
    out.warnings = warnings_out(warnings_about(group, group.name, call.services.clock.now()), call.language)
    return out
