"""At most one holder, taken over when it expires or is dead."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from kernel.db import Database
from kernel.lease import Holder, Lease, LeaseRow
from tests.fakes.clock import FakeClock

TTL_S = 15.0


def lease_of(database: Database, clock: FakeClock, holder: Holder | None = None) -> Lease:
    lease = Lease(database, clock, "controller", ttl_s=TTL_S)
    if holder is not None:
        lease._holder = holder
    return lease


def holder_of(pid: int) -> Holder:
    ticks = Path(f"/proc/{pid}/stat").read_text().split()[21]
    return replace(Holder.this_process(), pid=pid, started=ticks)


FAR_AWAY = Holder("elsewhere", 7, "1")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_the_first_to_ask_holds_it_and_renews(database: Database, clock: FakeClock) -> None:
    mine, other = lease_of(database, clock), lease_of(database, clock, FAR_AWAY)
    assert await mine.hold()
    assert not await other.hold()
    clock.pass_s(TTL_S - 1)
    assert await mine.hold()
    clock.pass_s(TTL_S - 1)
    assert not await other.hold()


async def test_it_is_taken_over_when_it_expires(database: Database, clock: FakeClock) -> None:
    mine, other = lease_of(database, clock), lease_of(database, clock, FAR_AWAY)
    assert await other.hold()
    clock.pass_s(TTL_S - 1)
    assert not await mine.hold()
    clock.pass_s(1)
    assert await mine.hold()
    assert not await other.hold()


async def test_it_is_free_once_released(database: Database, clock: FakeClock) -> None:
    mine, other = lease_of(database, clock), lease_of(database, clock, FAR_AWAY)
    assert await mine.hold()
    await other.release()  # not its own
    assert not await other.hold()
    await mine.release()
    assert await other.hold()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        yield child


async def test_a_dead_process_of_this_host_need_not_expire(
    database: Database, clock: FakeClock, child: subprocess.Popen[bytes]
) -> None:
    other = lease_of(database, clock, holder_of(child.pid))
    mine = lease_of(database, clock)
    assert await other.hold()
    assert not await mine.hold()
    child.communicate()
    assert await mine.hold()


async def test_a_zombie_is_a_dead_process(database: Database, clock: FakeClock, child: subprocess.Popen[bytes]) -> None:
    assert await lease_of(database, clock, holder_of(child.pid)).hold()
    _die_unburied(child)
    assert await lease_of(database, clock).hold()


async def test_a_later_process_with_the_same_number_is_another(database: Database, clock: FakeClock) -> None:
    me = Holder.this_process()
    former = lease_of(database, clock, replace(me, started=str(int(me.started) - 1)))
    assert await former.hold()
    assert await lease_of(database, clock).hold()


@pytest.mark.parametrize("part", [0, 1, 2])
async def test_a_dead_process_elsewhere_cannot_be_told_from_a_live_one(
    database: Database, clock: FakeClock, part: int
) -> None:
    me = Holder.this_process()
    place = me.host.split(":")
    place[part] = "another"  # machine, boot or container
    assert await lease_of(database, clock, replace(me, host=":".join(place), started="1")).hold()
    assert not await lease_of(database, clock).hold()


async def test_of_two_that_see_it_expired_one_gets_it(database: Database, clock: FakeClock) -> None:
    assert await lease_of(database, clock, FAR_AWAY).hold()
    async with database.write() as session:
        await session.execute(update(LeaseRow).values(expires_at=clock.now() - timedelta(seconds=1)))
    second, third = lease_of(database, clock, Holder("b", 1, "1")), lease_of(database, clock, Holder("c", 1, "1"))
    assert [await second.hold(), await third.hold()] == [True, False]


def test_a_holder_is_written_and_read() -> None:
    me = Holder.this_process()
    assert Holder.parse(str(me)) == me
    assert not me.is_gone()
    assert not FAR_AWAY.is_gone()


def _die_unburied(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
