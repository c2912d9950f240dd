"""`/clusters` (api.md §5)."""

from collections.abc import Sequence
from dataclasses import replace

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncSession

from api import timeline
from api.deps import Call, Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.base import PageOut, warnings_out
from api.schemas.clusters import ClusterCreate, ClusterEdit, ClusterOut, Force
from api.schemas.runs import EventOut
from cluster_groups.model.cluster import Cluster, ClusterKind, ClusterState
from kernel.errors import Problem, problem
from rayjobs.fleet import jobs_on_cluster
from rayjobs.queue_store import QueueStore
from rayjobs.snapshot import Load
from rayjobs.standing import count_waiting

router = v1_router("clusters")


@router.post("/clusters", status_code=201, response_model=ClusterOut)
async def create_cluster(body: ClusterCreate, call: Creating) -> Response:
    config = body.config()
    await call.replay()
    await call.services.first_look.refuse_unfit(call.actor, config)
    async with call.write() as session:
        cluster = await call.services.clusters.create(session, call.actor, config)
        out = ClusterOut.of(cluster, Load(), call.language)
        return call.created(out, f"/clusters/{cluster.id}", revision=cluster.revision)


@router.get("/clusters")
async def list_clusters(  # noqa: PLR0917 - filters of one list
    call: Reading,
    page: Paging,
    name: str | None = None,
    kind: ClusterKind | None = None,
    state: ClusterState | None = None,
    resource_package: str | None = None,
    resource_group: str | None = None,
    created_by: str | None = None,
) -> PageOut[ClusterOut]:
    filters = {
        "name": name,
        "kind": kind,
        "state": state,
        "resource_package": resource_package,
        "resource_group": resource_group,
        "created_by": created_by,
    }
    async with call.read() as session:
        found = await call.services.clusters.page(session, filters, page)
        loads = await QueueStore().ledger(session)
        items = [ClusterOut.of(one, loads.get(one.id, Load()), call.language) for one in found.items]
        return PageOut(items=items, next_cursor=found.next_cursor)


@router.get("/clusters/{ref}", response_model=ClusterOut)
async def get_cluster(ref: str, call: Reading) -> Response:
    async with call.read() as session:
        return await _answer(call, session, await call.services.clusters.get(session, ref))


@router.patch("/clusters/{ref}", response_model=ClusterOut)
async def edit_cluster(ref: str, body: ClusterEdit, call: Changing) -> Response:
    clusters, changes = call.services.clusters, body.changes()
    async with call.read() as session:
        present = await clusters.get(session, ref)
    await call.services.first_look.refuse_unfit(call.actor, replace(present, **changes), present)
    async with call.write() as session:
        if_match = call.expected_revision
        cluster = await clusters.edit(session, call.actor, ref, changes, if_match=if_match)
        return await _answer(call, session, cluster)


@router.delete("/clusters/{ref}", status_code=204, responses={202: {"model": ClusterOut}})
async def delete_cluster(ref: str, call: Changing, body: Force | None = None) -> Response:
    """202 while processes are still to be ended, or while others still name it; 204 when nothing of it is left."""
    force = body is not None and body.force
    async with call.write() as session:
        clusters, if_match = call.services.clusters, call.expected_revision
        cluster = await clusters.delete(session, call.actor, ref, force=force, if_match=if_match)
        left = await _still_named(call, session, cluster.name)
        gone = cluster.state is ClusterState.DELETED and not left
        return Response(status_code=204) if gone else await _answer(call, session, cluster, 202, left)


@router.post("/clusters/{ref}/start", status_code=202, response_model=ClusterOut)
async def start_cluster(ref: str, call: Creating) -> Response:
    async with call.write() as session:
        return await _answer(call, session, await call.services.clusters.start(session, call.actor, ref), 202)


@router.post("/clusters/{ref}/stop", status_code=202, response_model=ClusterOut)
async def stop_cluster(ref: str, call: Creating, body: Force | None = None) -> Response:
    force = body is not None and body.force
    async with call.write() as session:
        cluster = await call.services.clusters.stop(session, call.actor, ref, force=force)
        return await _answer(call, session, cluster, 202)


@router.post("/clusters/{ref}/cordon", status_code=202, response_model=ClusterOut)
async def cordon_cluster(ref: str, call: Creating) -> Response:
    async with call.write() as session:
        return await _answer(call, session, await call.services.clusters.cordon(session, call.actor, ref), 202)


@router.post("/clusters/{ref}/uncordon", status_code=202, response_model=ClusterOut)
async def uncordon_cluster(ref: str, call: Creating) -> Response:
    async with call.write() as session:
        return await _answer(call, session, await call.services.clusters.uncordon(session, call.actor, ref), 202)


@router.get("/clusters/{ref}/events")
async def list_cluster_events(ref: str, call: Reading, page: Paging) -> PageOut[EventOut]:
    async with call.read() as session:
        cluster = await call.services.clusters.get(session, ref)
        events = await timeline.list_events(session, cluster.id, page)
        return PageOut(items=[EventOut.of(row) for row in events.items], next_cursor=events.next_cursor)


async def _still_named(call: Call, session: AsyncSession, name: str) -> list[Problem]:
    """By what would look for it in vain."""
    jobs = await jobs_on_cluster(session, name)
    groups = await call.services.groups.by_name(session)
    inside = [one.name for one in groups.values() if name in {member.cluster for member in one.members}]
    waiting = await count_waiting(session, f"cluster/{name}")
    found = [problem("CLUSTER_AWAITED_BY_RUNS", cluster=name, count=waiting)] if waiting else []
    found += [problem("CLUSTER_NAMED_BY_JOBS", cluster=name, jobs=jobs)] if jobs else []
    return [*found, problem("CLUSTER_NAMED_BY_GROUPS", cluster=name, cluster_groups=inside)] if inside else found


async def _answer(
    call: Call, session: AsyncSession, cluster: Cluster, status: int = 200, warnings: Sequence[Problem] = ()
) -> Response:
    load = (await QueueStore().ledger(session)).get(cluster.id, Load())
    out = ClusterOut.of(cluster, load, call.language)
    out.warnings += warnings_out(warnings, call.language)
    return call.answer(out, status, revision=cluster.revision)
