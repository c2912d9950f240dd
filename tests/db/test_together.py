"""Units of work that share a transaction: durable when answered, and none pays for another."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.db import Database, after_commit
from kernel.lease import LeaseRow
from tests.builders.targets import NOW


def adding(name: str) -> Callable[[AsyncSession], Awaitable[AsyncSession]]:
    async def unit(session: AsyncSession) -> AsyncSession:
        session.add(LeaseRow(name=name, holder="h", expires_at=NOW))
        return session

    return unit


async def failing(session: AsyncSession) -> None:
    session.add(LeaseRow(name="half done", holder="h", expires_at=NOW))
    raise ZeroDivisionError


async def names(database: Database) -> list[str]:
    async with database.read() as session:
        return list(await session.scalars(select(LeaseRow.name).order_by(LeaseRow.name)))


async def test_what_comes_during_one_batch_is_the_next(database: Database) -> None:
    units = [database.write_together(adding(f"n{number}")) for number in range(9)]
    sessions = await asyncio.gather(*units)
    assert len({id(session) for session in sessions}) < len(units)
    assert await names(database) == [f"n{number}" for number in range(9)]


async def test_who_comes_alone_is_served_at_once(database: Database) -> None:
    for name in ("a", "b"):
        await database.write_together(adding(name))
        assert name in await names(database)


async def test_one_that_fails_leaves_nothing_and_takes_nobody_along(database: Database) -> None:
    units = [adding("a"), failing, adding("b")]
    results = await asyncio.gather(*(database.write_together(unit) for unit in units), return_exceptions=True)
    assert [isinstance(result, ZeroDivisionError) for result in results] == [False, True, False]
    assert await names(database) == ["a", "b"]


async def test_a_clash_is_told_to_the_later_one_only(database: Database) -> None:
    units = [adding("a"), adding("same"), adding("same"), adding("b")]
    results = await asyncio.gather(*(database.write_together(unit) for unit in units), return_exceptions=True)
    assert [isinstance(result, IntegrityError) for result in results] == [False, False, True, False]
    assert await names(database) == ["a", "b", "same"]


async def test_callbacks_come_once_and_after_the_commit(database: Database) -> None:
    told: list[str] = []

    async def telling(session: AsyncSession) -> None:
        after_commit(session, lambda: told.append("told"))

    units = [telling, failing, telling]
    await asyncio.gather(*(database.write_together(unit) for unit in units), return_exceptions=True)
    assert told == ["told", "told"]


async def test_who_has_gone_away_is_not_waited_for(database: Database) -> None:
    started = asyncio.Event()

    async def slow(session: AsyncSession) -> None:
        del session
        started.set()
        await asyncio.sleep(0.05)

    first = asyncio.create_task(database.write_together(slow))
    await started.wait()
    gone = asyncio.create_task(database.write_together(adding("gone")))
    stays = asyncio.create_task(database.write_together(adding("stays")))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, stays)
    assert await names(database) == ["stays"]


async def test_a_unit_that_is_cut_off_leaves_no_transaction_open(database: Database) -> None:
    flushed = asyncio.Event()

    async def endless() -> None:
        async with database.write() as session:
            session.add(LeaseRow(name="cut off", holder="h", expires_at=NOW))
            await session.flush()
            flushed.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(endless())
    await flushed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await database.write_together(adding("next"))
    assert await names(database) == ["next"]
