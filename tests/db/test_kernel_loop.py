"""The reconcile loop: every key is looked at, one look at a time, whatever goes wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import structlog
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.clock import SystemClock
from kernel.db import Database, Superseded
from kernel.events import EventRow, record
from kernel.loop import MAX_BACKOFF_S, MAX_REST_S, Hints, Loop, Reconciler, Stage, Step

TIMEOUT_S = 20
LOOK_S = 0.02


class Counter(Reconciler[str, str, int]):
    """Writes one event for each of its keys; what a look meets on the way, a test decides."""

    name = "counter"
    relist_s = 0.02

    def __init__(self, *keys: str) -> None:
        self.keys = keys
        self.acting: list[str] = []
        self.most_at_once = 0
        self.in_act: Callable[[str], Awaitable[None]] | None = None
        self.times_superseded = 0
        self.times_begun = 0
        self.pause_s = 0.0

    def begin(self) -> None:
        self.times_begun += 1

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        del session
        return self.keys

    async def load(self, session: AsyncSession, key: str) -> str | None:
        done = await session.scalar(select(EventRow.seq).where(EventRow.target_id == key))
        return key if done is None else None

    def decide(self, snapshot: str, now: datetime) -> str | None:
        del now
        return snapshot

    async def act(self, plan: str) -> int:
        self.acting.append(plan)
        self.most_at_once = max(self.most_at_once, len(self.acting))
        try:
            if self.in_act:
                await self.in_act(plan)
        finally:
            self.acting.remove(plan)
        return 1

    async def apply(self, session: AsyncSession, plan: str, outcome: int, now: datetime) -> None:
        del outcome
        record(session, plan, "COUNTED", at=now)
        if self.times_superseded:
            self.times_superseded -= 1
            raise Superseded

    def again_s(self, plan: str, outcome: int) -> float | None:
        del plan, outcome
        return self.pause_s


class Endless(Counter):
    """Never gets done."""

    def changes(self, plan: str, outcome: int) -> bool:
        del plan, outcome
        return False


async def counted(database: Database) -> dict[str, int]:
    async with database.read() as session:
        keys = list(await session.scalars(select(EventRow.target_id)))
    return {key: keys.count(key) for key in keys}


async def until_counted(database: Database, *keys: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while (await counted(database)).keys() != set(keys):  # noqa: ASYNC110 - a database rings no bell
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[Loop]:
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_key_is_brought_where_it_should_be_once(database: Database) -> None:
    keys = [f"k{number}" for number in range(40)]
    counter = Counter(*keys)
    async with running(Loop(counter, database, SystemClock())):
        await until_counted(database, *keys)
    assert set((await counted(database)).values()) == {1}
    assert 1 <= counter.most_at_once <= counter.concurrency


async def test_steps_are_told_in_order(database: Database) -> None:
    steps: list[Step] = []
    async with running(Loop(Counter("a"), database, SystemClock(), steps.append)):
        await until_counted(database, "a")
    assert [(step.key, step.stage, step.outcome) for step in steps[:3]] == [
        ("a", Stage.DECIDED, None),
        ("a", Stage.ACTED, 1),
        ("a", Stage.APPLIED, 1),
    ]


async def test_many_hints_cost_few_looks_where_a_look_is_dear(database: Database) -> None:
    counter, looks = Endless("a"), 0

    async def look(_key: str) -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0.02)

    counter.in_act, counter.rest = look, 4.0
    async with running(Loop(counter, database, SystemClock())) as loop:
        end = asyncio.get_running_loop().time() + 1.0
        while asyncio.get_running_loop().time() < end:
            loop.hint("a")
            await asyncio.sleep(0.002)
    assert 2 <= looks <= 11


async def test_who_answers_slowly_is_asked_less_often(database: Database) -> None:
    assert await _five_looks(database, pause_s=0.001, pace=6.0) > 4 * 6.0 * LOOK_S


async def test_what_is_due_now_is_not_held_back(database: Database) -> None:
    assert await _five_looks(database, pause_s=0.0, pace=1000.0) < 4 * MAX_REST_S


async def _five_looks(database: Database, *, pause_s: float, pace: float) -> float:
    """Seconds from the first to the fifth."""
    looks = asyncio.Queue[float]()

    async def look(_key: str) -> None:
        await asyncio.sleep(LOOK_S)
        looks.put_nowait(asyncio.get_running_loop().time())

    counter = Endless("a")
    counter.in_act, counter.relist_s, counter.pace, counter.pause_s = look, 30.0, pace, pause_s
    async with asyncio.timeout(TIMEOUT_S), running(Loop(counter, database, SystemClock())):
        ends = [await looks.get() for _ in range(5)]
    return ends[-1] - ends[0]


async def test_one_key_is_never_in_two_hands(database: Database) -> None:
    counter = Counter("a")
    loop = Loop(counter, database, SystemClock())

    async def hint_meanwhile(key: str) -> None:
        for _ in range(20):
            loop.hint(key)
            await asyncio.sleep(0)

    counter.in_act = hint_meanwhile
    async with running(loop):
        await until_counted(database, "a")
    assert counter.most_at_once == 1


async def test_a_hint_comes_before_the_next_list(database: Database) -> None:
    counter = Counter()
    counter.relist_s = 3600
    async with running(Loop(counter, database, SystemClock())) as loop:
        await asyncio.sleep(0)
        loop.hint("a")
        await until_counted(database, "a")


async def test_a_failing_key_holds_up_no_other(database: Database) -> None:
    counter = Counter("bad", "good")

    async def fail(key: str) -> None:
        if key == "bad":
            raise ZeroDivisionError("no")

    counter.in_act = fail
    with structlog.testing.capture_logs() as logs:
        async with running(Loop(counter, database, SystemClock())) as loop:
            await until_counted(database, "good")
    assert loop.last_error == "ZeroDivisionError"
    assert {line["key"] for line in logs if line["event"] == "step_failed"} == {"bad"}


async def test_what_was_overtaken_is_rolled_back_and_looked_at_again(database: Database) -> None:
    counter = Counter("a")
    counter.times_superseded = 2
    with structlog.testing.capture_logs() as logs:
        async with running(Loop(counter, database, SystemClock())):
            await until_counted(database, "a")
    assert await counted(database) == {"a": 1}
    assert logs == []


async def test_one_that_is_overtaken_again_and_again_is_left_alone_for_a_while(database: Database) -> None:
    loop = Loop(Counter(), database, SystemClock())
    assert [loop._back_off_s("a", free=1) for _ in range(4)] == [0.0, 0.5, 1.0, 2.0]
    assert max(loop._back_off_s("a") for _ in range(2000)) == MAX_BACKOFF_S


class TestLag:
    async def test_of_what_nobody_can_look_at(self, database: Database) -> None:
        counter, stuck = Counter("a"), asyncio.Event()
        counter.concurrency = 1

        async def wait(_key: str) -> None:
            stuck.set()
            await asyncio.Event().wait()

        counter.in_act = wait
        async with running(Loop(counter, database, SystemClock())) as loop:
            await asyncio.wait_for(stuck.wait(), TIMEOUT_S)
            before = loop.lag_s
            await asyncio.sleep(0.1)
            assert loop.lag_s >= before + 0.1
        assert loop.lag_s == 0

    async def test_of_a_list_that_does_not_come(self, database: Database) -> None:
        counter, stuck = Counter("a"), asyncio.Event()

        async def wait(_session: AsyncSession) -> Sequence[str]:
            stuck.set()
            await asyncio.Event().wait()
            return []

        counter.list_keys = wait  # type: ignore[method-assign]
        async with running(Loop(counter, database, SystemClock())) as loop:
            await asyncio.wait_for(stuck.wait(), TIMEOUT_S)
            await asyncio.sleep(0.1)
            assert loop.lag_s >= 0.1

    async def test_there_is_none_with_nothing_due(self, database: Database) -> None:
        counter = Counter()
        counter.relist_s = 3600
        async with running(Loop(counter, database, SystemClock())) as loop:
            loop.hint("a", after_s=3600)
            await asyncio.sleep(0.1)
            assert loop.lag_s == 0


async def test_hints_before_it_runs_are_not_kept(database: Database) -> None:
    """A process that stands by hears them too, for as long as it lives."""
    counter = Counter("a")
    loop = Loop(counter, database, SystemClock())
    loop.hint("b")
    async with running(loop):
        await until_counted(database, "a")
    loop.hint("b")
    assert (loop._due, loop._heap) == ({}, [])
    assert await counted(database) == {"a": 1}


async def test_it_is_told_each_time_it_begins(database: Database) -> None:
    counter = Counter()
    loop = Loop(counter, database, SystemClock())
    for times in (1, 2):
        async with running(loop):
            await asyncio.sleep(0)  # it begins before it waits for anything
            assert counter.times_begun == times


async def test_no_session_is_open_while_it_acts(database: Database) -> None:
    """Else a slow cluster would keep all writers of SQLite waiting."""
    counter = Counter("a")

    async def write(_key: str) -> None:
        async with asyncio.timeout(TIMEOUT_S), database.write() as session:
            record(session, "b", "OTHER", at=SystemClock().now())

    counter.in_act = write
    async with running(Loop(counter, database, SystemClock())):
        await until_counted(database, "a", "b")


class TestHints:
    async def test_are_given_once_the_change_is_durable(self, database: Database) -> None:
        hints, heard = Hints(), []
        hints.connect("loop", heard.append)
        async with database.write() as session:
            hints.send(session, "loop", "a")
            assert heard == []
        assert heard == ["a"]

    async def test_nobody_need_listen(self, database: Database) -> None:
        async with database.write() as session:
            Hints().send(session, "loop", "a")
