"""Virtual time: tasks sleep in it, and it passes only when none of them can go on."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

BEGIN = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class Timeline:
    """`now_s` since the beginning. A task is busy unless it sleeps here; whatever else it awaits takes no time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._busy = 0
        self._idle = asyncio.Event()
        self._ahead: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.now_s)

    def at(self, instant_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._ahead, (max(instant_s, self.now_s), next(self._numbers), what))

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._change(1)
        task.add_done_callback(self._ended)
        return task

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.now_s + seconds)

    async def sleep_until(self, instant_s: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.at(instant_s, lambda: self._wake(woken))
        self._change(-1)
        try:
            await woken
        except asyncio.CancelledError:
            if not woken.done() or woken.cancelled():
                self._change(1)
            raise

    async def cancel(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def play(self, until_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        await self._rest()
        while self._ahead and self._ahead[0][0] <= until_s and not is_over():
            self.now_s, _, what = heapq.heappop(self._ahead)
            what()
            await self._rest()
        self.now_s = max(self.now_s, min(until_s, self._ahead[0][0] if self._ahead else until_s))

    async def end(self) -> None:
        await self.cancel(set(self._tasks))

    async def _rest(self) -> None:
        """Until everybody sleeps."""
        while self._busy:
            self._idle.clear()
            await asyncio.wait_for(self._idle.wait(), timeout=60)
        if self._failure is not None:
            raise self._failure

    def _wake(self, woken: asyncio.Future[None]) -> None:
        if not woken.done():
            self._change(1)
            woken.set_result(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._change(-1)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()

    def _change(self, by: int) -> None:
        self._busy += by
        if self._busy == 0:
            self._idle.set()
