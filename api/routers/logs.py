"""Logs of a run: a page, a stream that resumes, the whole text (api.md §3)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.deps import Reading
from api.edge import v1_router
from api.run_stream import PAGE_BYTES, LogPlace, follow_log
from api.schemas.runs import MAX_NUMBER, LogChunk
from api.wiring import Services
from rayjobs import run_store
from rayjobs.log_pages import WhichLog, find_log, read_page

MAX_PAGE_BYTES = 8 * 2**20
MAX_OFFSET = 2**53

router = v1_router("runs")


async def existing_log(
    run_id: str,
    call: Reading,
    task_group: str | None = None,
    task: Annotated[int | None, Query(ge=0, le=MAX_NUMBER)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=MAX_NUMBER)] = None,
) -> WhichLog:
    """404 before a stream begins."""
    which = WhichLog(task_group=task_group, task=task, attempt=attempt)
    async with call.read() as session:
        await find_log(session, await run_store.get_run(session, run_id), which)
    return which


Which = Annotated[WhichLog, Depends(existing_log)]


async def place_to_begin(
    request: Request, run_id: str, call: Reading, which: Which, offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0
) -> LogPlace:
    """After the last event a reconnecting client has seen; else at `offset` in the attempt asked for, or the latest."""
    last_id = request.headers.get("last-event-id")
    told = LogPlace.of(last_id, which.attempt) if last_id else None
    async with call.read() as session:
        run = await run_store.get_run(session, run_id)
        if not run.epoch:
            return LogPlace(None, told.offset if told else offset)
        place = told or LogPlace(which.attempt or run.epoch, offset)
        await find_log(session, run, replace(which, attempt=place.epoch))
    return place


@router.get("/runs/{run_id}/logs")
async def get_log(
    run_id: str,
    call: Reading,
    which: Which,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
    limit_bytes: Annotated[int, Query(ge=1, le=MAX_PAGE_BYTES)] = 2**20,
) -> LogChunk:
    async with call.read() as session:
        run = await run_store.get_run(session, run_id)
        log = await find_log(session, run, which)
    page = await read_page(call.services.logs, run, log, offset=offset, limit_bytes=limit_bytes)
    return LogChunk(
        offset=page.offset, next_offset=page.next_offset, data=page.data, complete=page.complete, note=page.note
    )


@router.get("/runs/{run_id}/logs/stream", response_class=EventSourceResponse)
async def stream_log(
    run_id: str, call: Reading, which: Which, begin: Annotated[LogPlace, Depends(place_to_begin)]
) -> AsyncIterator[ServerSentEvent]:
    async for event in follow_log(call.services, run_id, which, begin):
        yield event


@router.get("/runs/{run_id}/logs/download", response_class=StreamingResponse)
async def download_log(run_id: str, call: Reading, which: Which) -> StreamingResponse:
    """What has been copied so far."""
    name = f'attachment; filename="{run_id}.log"'
    return StreamingResponse(
        _pages(call.services, run_id, which),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": name},
    )


async def _pages(services: Services, run_id: str, which: WhichLog) -> AsyncIterator[bytes]:
    offset = 0
    async with services.database.read() as session:
        run = await run_store.get_run(session, run_id)
        log = await find_log(session, run, which)
    while True:
        page = await read_page(services.logs, run, log, offset=offset, limit_bytes=PAGE_BYTES)
        if not page.data:
            return
        offset = page.next_offset
        yield page.data.encode()
