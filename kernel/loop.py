"""The one reconcile loop: list → (hint or timer) → load → decide → act without a session → guarded apply.

Level-triggered: a hint only makes a look come sooner, a lost one is made good by the next relist. One key is never
worked on twice at once here, and the guarded apply makes a second controller harmless.
"""

import asyncio
import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, NoReturn, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.clock import Clock
from kernel.db import Database, Superseded, after_commit
from kernel.together import LoadedTogether

SnapshotT = TypeVar("SnapshotT")
PlanT = TypeVar("PlanT")
OutcomeT = TypeVar("OutcomeT")

log = structlog.get_logger()

MAX_BACKOFF_S = 30.0
MANY_FAILURES = 3
MAX_REST_S = 1.0


class Stage(StrEnum):
    """The boundaries of one step, at which a crash must lose nothing."""

    DECIDED = "decided"
    ACTED = "acted"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class Step:
    """Told to the observer at each boundary of a step that has something to do. `outcome` is there once it acted."""

    loop: str
    key: str
    stage: Stage
    plan: Any
    outcome: Any = None
    decided_in_s: float = 0.0


Observer = Callable[[Step], None]


class Reconciler(ABC, Generic[SnapshotT, PlanT, OutcomeT]):
    """What one kind of thing needs to come from what is to what should be."""

    name: str
    relist_s: float = 30.0
    concurrency: int = 16
    applies_together: bool = False
    """Its writes may share a transaction with what else is written: for many small ones."""
    rest: float = 0.0
    """How many times as long as a look took its key is then left alone: many hints at once shall cost few looks."""
    pace: float = 0.0
    """How many times as long as `act` took the next look is off at least, unless it is due now or hinted: whoever
    answers slowly, because it has much to do, is asked less often."""

    def begin(self) -> None:
        """Looking begins, for the first time or after somebody else led."""

    @abstractmethod
    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        """Everything not yet settled."""

    @abstractmethod
    async def load(self, session: AsyncSession, key: str) -> SnapshotT | None:
        """A frozen view of it; None when there is nothing to do any more."""

    async def load_many(self, session: AsyncSession, keys: Sequence[str]) -> Mapping[str, SnapshotT]:
        """Like `load`, for keys that are due at the same moment; what has nothing to do is left out."""
        found = {key: await self.load(session, key) for key in keys}
        return {key: snapshot for key, snapshot in found.items() if snapshot is not None}

    @abstractmethod
    def decide(self, snapshot: SnapshotT, now: datetime) -> PlanT | None:
        """Pure. None: settled, look again when hinted or relisted."""

    @abstractmethod
    async def act(self, plan: PlanT) -> OutcomeT:
        """Touch the world; idempotent, since it is done again after a crash."""

    @abstractmethod
    async def apply(self, session: AsyncSession, plan: PlanT, outcome: OutcomeT, now: datetime) -> None:
        """Write what came of it, guarded by the version that was loaded.

        Superseded: nothing of it is written, and the next look is at once. A key that is overtaken again and again is
        left alone for a while, like one that fails.
        """

    def changes(self, plan: PlanT, outcome: OutcomeT) -> bool:
        """False spares the transaction when a look found nothing new."""
        del plan, outcome
        return True

    @abstractmethod
    def again_s(self, plan: PlanT, outcome: OutcomeT) -> float | None:
        """Seconds until the next look; None: when hinted or relisted."""


class Hints:
    """Tells listeners by topic once a change is committed: a loop to look at a key, a stream that there is news.

    A topic nobody in this process listens to is silent; whoever misses a hint finds out by looking.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, Callable[[str], None]] = {}

    def connect(self, topic: str, listener: Callable[[str], None]) -> None:
        self._listeners[topic] = listener

    def send(self, session: AsyncSession, topic: str, key: str) -> None:
        after_commit(session, lambda: self.send_now(topic, key))

    def send_now(self, topic: str, key: str) -> None:
        if topic in self._listeners:
            self._listeners[topic](key)


class Loop:
    """Runs one reconciler until cancelled."""

    def __init__(
        self,
        reconciler: Reconciler[Any, Any, Any],
        database: Database,
        clock: Clock,
        observer: Observer = lambda _step: None,
    ) -> None:
        self.reconciler = reconciler
        self.last_error: str | None = None
        """Its kind alone, since whoever asks may see it; the log has the rest."""
        self._failed_in_row = 0
        self._database = database
        self._loads: LoadedTogether[str, Any] = LoadedTogether(self._load)
        self._clock = clock
        self._observe = observer
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_running = False
        self._next_list = 0.0
        self._moved = 0.0
        """When a look began or ended last."""

    @property
    def is_failing(self) -> bool:
        """Nothing has succeeded for several looks."""
        return self._failed_in_row >= MANY_FAILURES

    @property
    def lag_s(self) -> float:
        """How long what is most overdue waits; with all hands full, how long no look has ended."""
        if not self._is_running:
            return 0.0
        waiting = [self._moved] if self._is_full else [due for key, due in self._due.items() if key not in self._busy]
        return max(0.0, time.monotonic() - min([self._next_list, *waiting]))

    def hint(self, key: str, after_s: float = 0.0) -> None:
        """Look at `key` no later than `after_s` from now. Before it runs, there is no need: it begins with a list."""
        due = time.monotonic() + after_s
        if self._is_running and due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._wake.set()

    async def run(self) -> NoReturn:
        self._next_list = time.monotonic()
        self._is_running = True
        self.reconciler.begin()
        try:
            while True:
                if time.monotonic() >= self._next_list:
                    await self._relist()
                    self._next_list = time.monotonic() + self.reconciler.relist_s
                self._start_due()
                await self._sleep_until(min(self._next_list, self._next_due()))
        finally:
            self._is_running = False
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for what_was_known in (self._due, self._heap, self._busy, self._failures):
                what_was_known.clear()

    @property
    def _is_full(self) -> bool:
        return len(self._busy) >= self.reconciler.concurrency

    async def _relist(self) -> None:
        try:
            async with self._database.read() as session:
                keys = await self.reconciler.list_keys(session)
        except Exception as error:  # noqa: BLE001 - one bad key or round must not end the loop
            self._note_failure("*", error)
            return
        self._failures.pop("*", None)
        for key in keys:
            if key not in self._due and key not in self._busy:
                self.hint(key)

    def _start_due(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now and not self._is_full:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue  # superseded by an earlier hint
            if key in self._busy:
                # Seen again when the present look ends.
                continue
            del self._due[key]
            self._moved = now
            self._busy.add(key)
            task = asyncio.create_task(self._look(key), name=f"{self.reconciler.name}:{key}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next_due(self) -> float:
        if self._is_full or not self._heap:
            return float("inf")
        return self._heap[0][0]

    async def _sleep_until(self, instant: float) -> None:
        self._wake.clear()
        timeout = max(0.0, min(instant - time.monotonic(), self.reconciler.relist_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # wait_for may swallow a cancellation (Python 3.11)
                await self._wake.wait()

    async def _look(self, key: str) -> None:
        again: float | None = None
        start = time.monotonic()
        try:
            again = await self._step(key)
            self._failed_in_row = 0
            if self._failures.pop(key, None):
                self.last_error = None
            await asyncio.sleep(min(self.reconciler.rest * (time.monotonic() - start), MAX_REST_S))
        except Superseded:
            again = self._back_off_s(key, free=1)
        except Exception as error:  # noqa: BLE001 - one bad key or round must not end the loop
            again = self._note_failure(key, error)
        finally:
            self._moved = time.monotonic()
            self._busy.discard(key)
            waiting = self._due.pop(key, None)  # a hint that came during the look
            if waiting is not None:
                self.hint(key)
            elif again is not None:
                self.hint(key, again)
            self._wake.set()

    async def _load(self, keys: Sequence[str]) -> Mapping[str, Any]:
        async with self._database.read() as session:
            return await self.reconciler.load_many(session, keys)

    async def _step(self, key: str) -> float | None:
        reconciler = self.reconciler
        snapshot = await self._loads.get(key)
        start = time.perf_counter()
        plan = None if snapshot is None else reconciler.decide(snapshot, self._clock.now())
        if plan is None:
            return None
        self._observe(Step(reconciler.name, key, Stage.DECIDED, plan, decided_in_s=time.perf_counter() - start))
        start = time.monotonic()
        outcome = await reconciler.act(plan)
        took_s = time.monotonic() - start
        self._observe(Step(reconciler.name, key, Stage.ACTED, plan, outcome))
        if reconciler.changes(plan, outcome):
            await self._apply(plan, outcome)
            self._observe(Step(reconciler.name, key, Stage.APPLIED, plan, outcome))
        return self._in_pace(reconciler.again_s(plan, outcome), took_s)

    async def _apply(self, plan: Any, outcome: Any) -> None:
        async def unit(session: AsyncSession) -> None:
            await self.reconciler.apply(session, plan, outcome, self._clock.now())

        if self.reconciler.applies_together:
            await self._database.write_together(unit)
        else:
            async with self._database.write() as session:
                await unit(session)

    def _in_pace(self, again_s: float | None, took_s: float) -> float | None:
        return max(again_s, min(self.reconciler.pace * took_s, MAX_REST_S)) if again_s else again_s

    def _note_failure(self, key: str, error: Exception) -> float:
        pause_s = self._back_off_s(key)
        self.last_error = type(error).__name__
        self._failed_in_row += 1
        log.error("step_failed", loop=self.reconciler.name, key=key, failures=self._failures[key], exc_info=error)
        return pause_s

    def _back_off_s(self, key: str, *, free: int = 0) -> float:
        """How long to leave a key alone: 0.5 s, doubled up to `MAX_BACKOFF_S`; the first `free` times not at all."""
        self._failures[key] = self._failures.get(key, 0) + 1
        count = min(self._failures[key], 10) - free  # no more, or the power overflows one day
        return min(0.5 * 2.0 ** (count - 1), MAX_BACKOFF_S) if count > 0 else 0.0
