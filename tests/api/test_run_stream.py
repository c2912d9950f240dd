"""Changes of runs as they are told to whoever listens."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from fastapi.sse import ServerSentEvent
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from api import run_stream
from api.run_stream import follow_changes
from api.wiring import Services
from kernel.events import EventRow, record
from rayjobs.tables import RunRow
from tests.builders.job_world import World
from tests.builders.targets import store_cluster, store_package

TIMEOUT_S = 20
_number = itertools.count(1)


async def change(session: AsyncSession, run: str) -> None:
    await look_different(session, run)
    record(session, run, "CHANGED", at=datetime.now(UTC))


async def look_different(session: AsyncSession, run: str) -> None:
    condition = {"code": f"CODE_{next(_number)}"}
    await session.execute(update(RunRow).where(RunRow.id == run).values(condition=condition))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_stream, "LOOK_AT_LEAST_EVERY_S", 0.01)


async def told_next(stream: AsyncIterator[ServerSentEvent]) -> ServerSentEvent:
    async with asyncio.timeout(TIMEOUT_S):
        return await anext(stream)


async def two_runs(services: Services) -> tuple[str, str]:
    async with services.database.write() as session:
        await store_cluster(session)
        world = World(services.database, services.jobs, await store_package(session))
    job = (await world.create(world.shared())).job
    return await world.run(job), await world.run(job)


async def test_a_run_is_told_once_for_all_that_is_new(services: Services) -> None:
    first, second = await two_runs(services)
    async with services.database.write() as session:
        for run in (second, first, first):
            await change(session, run)
    stream = follow_changes(services, 0)
    told = [await told_next(stream) for _ in range(2)]
    assert [event.data.id for event in told] == [second, first]
    async with services.database.write() as session:
        await change(session, second)
    last = await told_next(stream)
    assert last.data.id == second
    await stream.aclose()  # type: ignore[attr-defined]  # a generator
    resumed = follow_changes(services, int(last.id))
    again = [await told_next(resumed) for _ in range(2)]
    assert {event.data.id for event in again} == {first, second}
    assert {event.id for event in again} == {last.id}
    await resumed.aclose()  # type: ignore[attr-defined]  # a generator


async def test_what_looks_as_before_is_not_told_again(services: Services) -> None:
    first, second = await two_runs(services)
    stream = follow_changes(services, 0)
    assert {(await told_next(stream)).data.id for _ in range(2)} == {first, second}
    async with services.database.write() as session:
        record(session, first, "LOG_COPIED", at=datetime.now(UTC))
    async with services.database.write() as session:
        await change(session, second)
    assert (await told_next(stream)).data.id == second
    await stream.aclose()  # type: ignore[attr-defined]  # a generator


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_what_is_committed_late_is_told_late(services: Services) -> None:
    """Numbers are given out before commits, so one may appear after a higher one."""
    first, second = await two_runs(services)
    stream = follow_changes(services, 0)
    assert {(await told_next(stream)).data.id for _ in range(2)} == {first, second}
    async with services.database.write() as slow:
        await look_different(slow, first)
        slow.add(EventRow(at=datetime.now(UTC), target_id=first, type="CHANGED", actor="ann", params={}))
        await slow.flush()
        async with services.database.write() as session:
            await change(session, second)
        before = await told_next(stream)
        assert before.data.id == second
    late = await told_next(stream)
    assert (late.data.id, late.id) == (first, before.id)
    async with services.database.write() as session:
        await change(session, second)
    assert (await told_next(stream)).data.id == second
    await stream.aclose()  # type: ignore[attr-defined]  # a generator
