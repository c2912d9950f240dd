"""Whoever holds the lease does the duties, for as long as it does; time is scaled down a hundredfold."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog

from kernel import controller as module
from kernel.clock import SystemClock
from kernel.controller import Controller, Duty
from kernel.db import Database
from kernel.lease import Holder, Lease

TIMEOUT_S = 20
TTL_S = 0.6
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # that of leases is tested on both


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TTL_S", TTL_S)
    monkeypatch.setattr(module, "RENEW_S", TTL_S / 3)


class ShakyLease(Lease):
    """On a database that a test takes away."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, SystemClock(), "controller", ttl_s=TTL_S)
        self.trouble: Callable[[], object] = lambda: None
        self.asked = asyncio.Event()

    async def hold(self) -> bool:
        self.asked.set()
        if isinstance(trouble := self.trouble(), asyncio.Event):
            await trouble.wait()
        return await super().hold()


class Work:
    """A duty that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def __call__(self) -> None:
        self.times += 1
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@asynccontextmanager
async def controlling(lease: Lease, **duties: Duty) -> AsyncIterator[Controller]:
    controller = Controller(lease, duties)
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def happens(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), TIMEOUT_S)


def elsewhere(database: Database) -> Lease:
    lease = Lease(database, SystemClock(), "controller", ttl_s=3600)
    lease._holder = Holder("elsewhere", 1, "1")
    return lease


async def test_only_the_holder_of_the_lease_does_the_duties(database: Database) -> None:
    other, lease, work = elsewhere(database), ShakyLease(database), Work()
    assert await other.hold()
    async with controlling(lease, work=work) as controller:
        await happens(lease.asked)
        lease.asked.clear()
        await happens(lease.asked)
        assert (controller.is_leading, work.times) == (False, 0)
        await other.release()
        await happens(work.begun)
        assert controller.is_leading
    assert (controller.is_leading, work.ended.is_set()) == (False, True)
    assert await other.hold()  # it was given back


async def test_a_passing_error_takes_nothing_away(database: Database) -> None:
    lease, work, failed = ShakyLease(database), Work(), asyncio.Event()

    def fail_once() -> None:
        if not failed.is_set():
            failed.set()
            raise ConnectionError

    async with controlling(lease, work=work) as controller:
        await happens(work.begun)
        lease.trouble = fail_once
        await happens(failed)
        for _ in range(2):
            lease.asked.clear()
            await happens(lease.asked)
        assert (controller.is_leading, work.times, work.ended.is_set()) == (True, 1, False)


def _fail() -> None:
    raise ConnectionError


@pytest.mark.parametrize("trouble", [_fail, asyncio.Event], ids=["fails", "hangs"])
async def test_without_the_database_it_leads_until_the_lease_runs_out(
    database: Database, trouble: Callable[[], object]
) -> None:
    lease, work = ShakyLease(database), Work()
    async with controlling(lease, work=work) as controller:
        await happens(work.begun)
        began = asyncio.get_running_loop().time()
        lease.trouble = trouble
        await happens(work.ended)
        assert TTL_S / 2 < asyncio.get_running_loop().time() - began < 2 * TTL_S
        lease.trouble = lambda: None
        work.begun.clear()
        await happens(work.begun)
        assert controller.is_leading


async def test_a_duty_that_fails_is_told_and_taken_up_again(database: Database) -> None:
    failures, again, other = [ZeroDivisionError()], asyncio.Event(), Work()

    async def fail_once() -> None:
        if failures:
            raise failures.pop()
        again.set()

    with structlog.testing.capture_logs() as logs:
        async with controlling(ShakyLease(database), first=fail_once, second=other):
            await happens(again)
    assert [line["duty"] for line in logs if line["event"] == "duty_failed"] == ["first"]
    assert other.times == 1
