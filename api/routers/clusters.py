"""`/clusters` (api.md §5)."""

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncSession

from api import timeline
from api.deps import Call, Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.base import PageOut
from api.schemas.clusters import ClusterCreate, ClusterEdit, ClusterOut, Force
from api.schemas.runs import EventOut
from cluster_groups.model.cluster import Cluster, ClusterState
from rayjobs.run_store import ledger
from rayjobs.snapshot import Load

router = v1_router("clusters")


@router.post("/clusters", status_code=201, response_model=ClusterOut)
async def create_cluster(body: ClusterCreate, call: Creating) -> Response:
    async with call.write() as session:
        cluster = await call.services.clusters.create(session, call.actor, body.config())
        out = ClusterOut.of(cluster, Load(), call.language)
        return call.created(out, f"/clusters/{cluster.id}", revision=cluster.revision)


@router.get("/clusters")
async def list_clusters(  # noqa: PLR0917 - filters of one list
    call: Reading,
    page: Paging,
    name: str | None = None,
    kind: str | None = None,
    state: str | None = None,
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
        loads = await ledger(session)
        items = [ClusterOut.of(one, loads.get(one.id, Load()), call.language) for one in found.items]
        return PageOut(items=items, next_cursor=found.next_cursor)


@router.get("/clusters/{ref}", response_model=ClusterOut)
async def get_cluster(ref: str, call: Reading) -> Response:
    async with call.read() as session:
        return await _answer(call, session, await call.services.clusters.get(session, ref))


@router.patch("/clusters/{ref}", response_model=ClusterOut)
async def edit_cluster(ref: str, body: ClusterEdit, call: Changing) -> Response:
    async with call.write() as session:
        clusters = call.services.clusters
        if_match = call.expected_revision
        cluster = await clusters.edit(session, call.actor, ref, body.changes(), if_match=if_match)
        return await _answer(call, session, cluster)


@router.delete("/clusters/{ref}", status_code=204, responses={202: {"model": ClusterOut}})
async def delete_cluster(ref: str, call: Changing, body: Force | None = None) -> Response:
    """202 while processes are still to be ended, 204 when nothing of it is left."""
    force = body is not None and body.force
    async with call.write() as session:
        clusters, if_match = call.services.clusters, call.expected_revision
        cluster = await clusters.delete(session, call.actor, ref, force=force, if_match=if_match)
        gone = cluster.state is ClusterState.DELETED
        return Response(status_code=204) if gone else await _answer(call, session, cluster, 202)


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


async def _answer(call: Call, session: AsyncSession, cluster: Cluster, status: int = 200) -> Response:
    load = (await ledger(session)).get(cluster.id, Load())
    return call.answer(ClusterOut.of(cluster, load, call.language), status, revision=cluster.revision)
