"""`/runs`, and the Run button of `/jobs` (api.md §2, §3)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Call, Changing, Creating, Paging, Part, Parting, Reading
from api.edge import v1_router
from api.run_stream import follow_changes
from api.schemas.base import PageOut
from api.schemas.decisions import DecisionOut
from api.schemas.runs import MAX_NUMBER, EventOut, ExplanationOut, Items, QueueRow, RunCreate, RunEdit, RunOut, TaskOut
from api.streaming import ResumeFrom
from rayjobs import run_store
from rayjobs.explain import explain_run, suppose
from rayjobs.model.run import RunState
from rayjobs.run_report import events_of, report_many, report_new, report_one, report_tasks
from rayjobs.run_store import RunFilter
from rayjobs.standing import queue_in_order

router = v1_router("runs")


@router.post("/jobs/{ref}/runs", status_code=201, response_model=RunOut)
async def submit_run(ref: str, call: Creating, body: RunCreate | None = None) -> Response:
    asked = (body or RunCreate()).model_dump()

    async def submit(session: AsyncSession) -> Response:
        row = await call.services.runs.run_job(session, call.actor, ref, **asked)
        return call.created(RunOut.of(report_new(row), call.language), f"/runs/{row.id}")

    return await call.write_together(submit)


@router.post("/jobs/{ref}/explain")
async def explain(ref: str, call: Reading) -> ExplanationOut:
    """The decision a run of this job would get now; nothing is stored."""
    now = call.services.clock.now()
    async with call.read() as session:
        job = await call.services.jobs.get(session, ref)
        run, snapshot = await suppose(session, call.services.fleet, call.actor, job.spec, now)
    told = await asyncio.to_thread(explain_run, snapshot, run, now)  # a look at all that waits
    return ExplanationOut.of(told, call.language)


@router.get("/runs")
async def list_runs(  # noqa: PLR0917 - filters of one list
    call: Reading,
    page: Paging,
    job: str | None = None,
    state: Annotated[list[RunState] | None, Query(description="May be given several times.")] = None,
    cluster: str | None = None,
    cluster_group: str | None = None,
    resource_group: str | None = None,
    created_by: str | None = None,
    tag: Annotated[str | None, Query(description="`key:value`")] = None,
) -> PageOut[RunOut]:
    given = {
        "cluster": cluster,
        "cluster_group": cluster_group,
        "resource_group": resource_group,
        "created_by": created_by,
    }
    equal = {name: value for name, value in given.items() if value is not None}
    wanted = RunFilter(equal=equal, states=state or (), job=job, tag=tag)
    async with call.read() as session:
        found = await run_store.page_of_runs(session, wanted, page)
        reports = await report_many(session, found.items, call.services.clock.now())
        items = [RunOut.of(report, call.language) for report in reports]
        return PageOut(items=items, next_cursor=found.next_cursor)


@router.get("/resource-groups/{ref}/queue")
async def show_queue(ref: str, call: Reading, part: Parting) -> PageOut[QueueRow]:
    """Runs that wait for a cluster of their own, first in line first."""
    async with call.read() as session:
        group = await call.services.pools.get_group(session, ref)
        return await _queue(call, session, f"resource_group/{group.name}", part)


@router.get("/clusters/{ref}/queue")
async def show_queue_of_cluster(ref: str, call: Reading, part: Parting) -> PageOut[QueueRow]:
    """Runs that wait for this very cluster, first in line first; those of its cluster groups wait in theirs."""
    async with call.read() as session:
        cluster = await call.services.clusters.get(session, ref)
        return await _queue(call, session, f"cluster/{cluster.name}", part)


@router.get("/cluster-groups/{ref}/queue")
async def show_queue_of_cluster_group(ref: str, call: Reading, part: Parting) -> PageOut[QueueRow]:
    """Runs that wait for any member, first in line first."""
    async with call.read() as session:
        group = await call.services.groups.get(session, ref)
        return await _queue(call, session, f"cluster_group/{group.name}", part)


async def _queue(call: Call, session: AsyncSession, queue: str, part: Part) -> PageOut[QueueRow]:
    waiting = await queue_in_order(session, queue, call.services.clock.now())
    items = [QueueRow.of(row, (at, priority), call.language) for at, (row, priority) in enumerate(waiting, start=1)]
    return PageOut(**part.of(items))


@router.get("/runs/stream", response_class=EventSourceResponse)
async def stream_runs(call: Reading, since: ResumeFrom) -> AsyncIterator[ServerSentEvent]:
    async for event in follow_changes(call.services, since):
        yield event


@router.get("/runs/{run_id}")
async def get_run(run_id: str, call: Reading) -> RunOut:
    async with call.read() as session:
        row = await run_store.get_run(session, run_id)
        return RunOut.of(await report_one(session, row, call.services.clock.now()), call.language)


@router.patch("/runs/{run_id}")
async def edit_run(run_id: str, body: RunEdit, call: Changing) -> RunOut:
    async with call.write() as session:
        row = await call.services.runs.set_priority(session, call.actor, run_id, body.priority)
        return RunOut.of(await report_one(session, row, call.services.clock.now()), call.language)


@router.post("/runs/{run_id}/stop", status_code=202, response_model=RunOut)
async def stop_run(run_id: str, call: Creating) -> Response:
    """202; 200 with the run unchanged when it was over already."""
    async with call.write() as session:
        before = await run_store.get_run(session, run_id)
        was_over = before.ended_at is not None
        row = await call.services.runs.stop(session, call.actor, run_id)
        out = RunOut.of(await report_one(session, row, call.services.clock.now()), call.language)
        return call.answer(out, 200 if was_over else 202)


@router.get("/runs/{run_id}/tasks")
async def list_tasks(
    run_id: str,
    call: Reading,
    part: Parting,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_NUMBER, description="As they were in this attempt.")] = None,
) -> Items:
    async with call.read() as session:
        tasks = await report_tasks(session, await run_store.get_run(session, run_id), attempt)
        return Items(**part.of([TaskOut.of(task) for task in tasks]))


@router.get("/runs/{run_id}/events")
async def list_events(run_id: str, call: Reading, part: Parting) -> Items:
    async with call.read() as session:
        await run_store.get_run(session, run_id)
        return Items(**part.of([EventOut.of(row) for row in await events_of(session, run_id)]))


@router.get("/runs/{run_id}/decisions")
async def list_decisions(run_id: str, call: Reading, part: Parting) -> PageOut[DecisionOut]:
    """Oldest first."""
    async with call.read() as session:
        await run_store.get_run(session, run_id)
        decisions = await run_store.decisions_of(session, run_id)
        return PageOut(**part.of([DecisionOut.of(one, call.language) for one in decisions]))
