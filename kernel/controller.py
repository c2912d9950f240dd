"""One process of an installation runs the loops: the one that holds the lease. The others stand by and take over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from kernel.lease import Lease
from kernel.loop import Loop

log = structlog.get_logger()

TTL_S = 15.0
RENEW_S = 5.0


class Controller:
    def __init__(self, lease: Lease, loops: Sequence[Loop], take_over: Callable[[], Awaitable[object]]) -> None:
        """`take_over` is done once whenever this process comes to lead, beside the loops."""
        self._lease = lease
        self._loops = loops
        self._take_over = take_over
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_leading(self) -> bool:
        return bool(self._tasks)

    async def run(self) -> None:
        """Until cancelled; then the lease is given back, so that a successor need not wait for it to expire."""
        try:
            while True:
                await self._follow(await self._renew())
                await asyncio.sleep(RENEW_S)
        finally:
            await self._follow(leading=False)
            await self._lease.release()

    async def _renew(self) -> bool:
        try:
            return await self._lease.hold()
        except Exception:  # a database that is away for a moment must not end the controller
            log.exception("lease_failed")
            return False

    async def _try_to_take_over(self) -> None:
        try:
            await self._take_over()
        except Exception:
            log.exception("take_over_failed")

    async def _follow(self, leading: bool) -> None:  # noqa: FBT001 - whether to lead is all there is to say
        if leading and not self._tasks:
            log.info("leading")
            self._tasks = [asyncio.create_task(loop.run(), name=loop.reconciler.name) for loop in self._loops]
            self._tasks.append(asyncio.create_task(self._try_to_take_over(), name="take-over"))
        elif not leading and self._tasks:
            log.info("not_leading")
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks = []
