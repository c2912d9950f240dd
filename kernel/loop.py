"""The one reconcile loop: list → (hint or timer) → load → decide → act without a session → guarded apply.

Level-triggered: a hint only makes a look come sooner, a lost one is made good by the next relist. One key is never
worked on twice at once here, and the guarded apply makes a second controller harmless.
"""

import asyncio
import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.clock import Clock
from kernel.db import Database, after_commit

SnapshotT = TypeVar("SnapshotT")
PlanT = TypeVar("PlanT")
OutcomeT = TypeVar("OutcomeT")

log = structlog.get_logger()

MAX_BACKOFF_S = 30.0
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


class Superseded(Exception):
    """Raised by `apply` when a guard finds the row changed: everything is rolled back, the next look is at once."""


class Reconciler(ABC, Generic[SnapshotT, PlanT, OutcomeT]):
    """What one kind of thing needs to come from what is to what should be."""

    name: str
    relist_s: float = 30.0
    concurrency: int = 16
    rest: float = 0.0
    """How many times as long as a look took its key is then left alone: many hints at once shall cost few looks."""

    @abstractmethod
    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        """Everything not yet settled."""

    @abstractmethod
    async def load(self, session: AsyncSession, key: str) -> SnapshotT | None:
        """A frozen view of it; None when there is nothing to do any more."""

    @abstractmethod
    def decide(self, snapshot: SnapshotT, now: datetime) -> PlanT | None:
        """Pure. None: settled, look again when hinted or relisted."""

    @abstractmethod
    async def act(self, plan: PlanT) -> OutcomeT:
        """Touch the world; idempotent, since it is done again after a crash."""

    @abstractmethod
    async def apply(self, session: AsyncSession, plan: PlanT, outcome: OutcomeT, now: datetime) -> None:
        """Write what came of it, guarded by the version that was loaded."""

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
        self.lag_s = 0.0
        self.last_error: str | None = None
        self._database = database
        self._clock = clock
        self._observe = observer
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def hint(self, key: str, after_s: float = 0.0) -> None:
        """Look at `key` no later than `after_s` from now."""
        due = time.monotonic() + after_s
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._wake.set()

    async def run(self) -> None:
        next_list = 0.0
        try:
            while True:
                if time.monotonic() >= next_list:
                    await self._relist()
                    next_list = time.monotonic() + self.reconciler.relist_s
                self._start_due()
                await self._sleep_until(min(next_list, self._next_due()))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relist(self) -> None:
        try:
            async with self._database.read() as session:
                keys = await self.reconciler.list_keys(session)
        except Exception as error:  # noqa: BLE001 - one bad key or round must not end the loop
            self._note_failure("*", error)
            return
        for key in keys:
            if key not in self._due and key not in self._busy:
                self.hint(key)

    def _start_due(self) -> None:
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now and len(self._busy) < self.reconciler.concurrency:
            due, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue  # superseded by an earlier hint
            if key in self._busy:
                # Seen again when the present look ends.
                continue
            del self._due[key]
            self.lag_s = now - due
            self._busy.add(key)
            task = asyncio.create_task(self._look(key), name=f"{self.reconciler.name}:{key}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next_due(self) -> float:
        if len(self._busy) >= self.reconciler.concurrency or not self._heap:
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
            self._failures.pop(key, None)
            await asyncio.sleep(min(self.reconciler.rest * (time.monotonic() - start), MAX_REST_S))
        except Superseded:
            again = 0.0
        except Exception as error:  # noqa: BLE001 - one bad key or round must not end the loop
            again = self._note_failure(key, error)
        finally:
            self._busy.discard(key)
            waiting = self._due.pop(key, None)  # a hint that came during the look
            if waiting is not None:
                self.hint(key)
            elif again is not None:
                self.hint(key, again)
            self._wake.set()

    async def _step(self, key: str) -> float | None:
        reconciler = self.reconciler
        async with self._database.read() as session:
            snapshot = await reconciler.load(session, key)
        start = time.perf_counter()
        plan = None if snapshot is None else reconciler.decide(snapshot, self._clock.now())
        if plan is None:
            return None
        self._observe(Step(reconciler.name, key, Stage.DECIDED, plan, decided_in_s=time.perf_counter() - start))
        outcome = await reconciler.act(plan)
        self._observe(Step(reconciler.name, key, Stage.ACTED, plan, outcome))
        if reconciler.changes(plan, outcome):
            async with self._database.write() as session:
                await reconciler.apply(session, plan, outcome, self._clock.now())
            self._observe(Step(reconciler.name, key, Stage.APPLIED, plan, outcome))
        return reconciler.again_s(plan, outcome)

    def _note_failure(self, key: str, error: Exception) -> float:
        """Log it and say how long to leave this key alone: 0.5 s, doubled up to `MAX_BACKOFF_S`."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self.last_error = f"{key}: {type(error).__name__}: {error}"
        log.error("step_failed", loop=self.reconciler.name, key=key, failures=count, exc_info=error)
        return min(0.5 * 2.0 ** (count - 1), MAX_BACKOFF_S)
