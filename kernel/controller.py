"""One process of an installation does the leader's duties: the one that holds the lease. The others stand by."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import structlog

from kernel.lease import Lease

log = structlog.get_logger()

TTL_S = 15.0
RENEW_S = 5.0

Duty = Callable[[], Awaitable[object]]
"""Begun whenever this process comes to lead, cancelled when it no longer does. One that returns is done till then."""


class Controller:
    def __init__(self, lease: Lease, duties: Mapping[str, Duty]) -> None:
        self._lease = lease
        self._duties = duties
        self._tasks: list[asyncio.Task[None]] = []
        self._runs_out = 0.0

    @property
    def is_leading(self) -> bool:
        return bool(self._tasks)

    async def run(self) -> None:
        """Until cancelled; then the lease is given back, so that a successor need not wait for it to expire."""
        try:
            while True:
                await self._follow(await self._may_lead())
                await asyncio.sleep(min(RENEW_S, self._left_s()) if self.is_leading else RENEW_S)
        finally:
            await self._follow(leading=False)
            await self._lease.release()

    async def _may_lead(self) -> bool:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(self._left_s() if self.is_leading else TTL_S - RENEW_S):
                held = await self._lease.hold()
        except Exception:  # a database that is away for a moment neither ends the controller nor takes the lease away
            log.exception("lease_failed")
            return self.is_leading and self._left_s() > 0
        if held:
            self._runs_out = asked + TTL_S
        return held

    def _left_s(self) -> float:
        """How long nobody else can have the lease, for all that is known here."""
        return max(0.0, self._runs_out - time.monotonic())

    async def _follow(self, leading: bool) -> None:  # noqa: FBT001 - whether to lead is all there is to say
        if leading and not self._tasks:
            log.info("leading")
            self._tasks = [asyncio.create_task(_see_to(name, duty), name=name) for name, duty in self._duties.items()]
        elif not leading and self._tasks:
            log.info("not_leading")
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks = []


async def _see_to(name: str, duty: Duty) -> None:
    while True:
        try:
            await duty()
        except Exception:
            log.exception("duty_failed", duty=name)
            await asyncio.sleep(RENEW_S)
        else:
            return
