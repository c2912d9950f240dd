"""What goes by itself once a day: what is older than it is to be kept, and what nobody names any more."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

import structlog

from api import idempotency
from kernel.clock import Clock
from kernel.db import Database
from rayjobs.retention import Keep, expire
from runtime_envs.packages.base import BlobStore
from runtime_envs.reconcile import collect

log = structlog.get_logger()

DAY_S = 24 * 3600
HOUR_S = 3600
KEEP_RAY_UPLOADS_S = 30 * DAY_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaning:
    database: Database
    blobs: BlobStore
    clock: Clock
    keep: Keep

    async def daily(self) -> NoReturn:
        while True:
            pause_s = await self.try_once()
            await asyncio.sleep(pause_s)

    async def try_once(self) -> int:
        """Seconds until the next time: a failure is not worth more than a line an hour."""
        try:
            await self._clean(self.clock.now())
        except Exception:
            log.exception("clean_failed")
            return HOUR_S
        return DAY_S

    async def _clean(self, now: datetime) -> None:
        async with self.database.write() as session:
            await idempotency.prune(session, now)
        await expire(self.database, self.blobs, self.keep, now)
        await collect(self.database, self.blobs, now, keep_ray_uploads_s=KEEP_RAY_UPLOADS_S)
