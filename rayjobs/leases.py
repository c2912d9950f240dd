"""The service's end of leases: who may ask for one, and the promise to start nothing else before it has run out.

Every running attempt that has a lease asks each 15 s, so what comes together is renewed together, past the attempt's
version: nothing that is decided about it depends on the last renewal but when another attempt may start.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.clock import Clock
from kernel.db import Database, update_last
from kernel.errors import Conflict, Unauthenticated
from kernel.together import LoadedTogether
from rayjobs.decide.lease import may_renew
from rayjobs.model.run import AttemptState
from rayjobs.runner.spec import LeaseTerms
from rayjobs.tables import AttemptRow, RunRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Callback:
    """How runners reach Muster. Claims are derived, so that a submission sent again is the same."""

    url: str
    key: bytes = field(repr=False)
    former: tuple[bytes, ...] = field(default=(), repr=False)
    """Keys before this one, whose claims are still on their way."""

    def terms(self, attempt_id: str) -> LeaseTerms:
        url = f"{self.url}/runner/v1/attempts/{attempt_id}/lease"
        return LeaseTerms(url=url, claim=_claim(self.key, attempt_id))

    def honours(self, claim: str, attempt_id: str) -> bool:
        return any(
            hmac.compare_digest(claim.encode(), _claim(key, attempt_id).encode()) for key in (self.key, *self.former)
        )


class Leases:
    def __init__(self, database: Database, clock: Clock, callback: Callback | None) -> None:
        self._database = database
        self._clock = clock
        self._callback = callback
        self._renewals = LoadedTogether(self._renew)

    async def renew(self, attempt_id: str, claim: str, secret: str) -> int:
        """Seconds for which it may go on. The first secret that comes with the right claim is the one that counts."""
        await self._know(attempt_id, claim, hashlib.sha256(secret.encode()).hexdigest())
        ttl_s = await self._renewals.get(attempt_id)
        if ttl_s is None:
            raise Conflict("LEASE_REFUSED", attempt=attempt_id)
        return ttl_s

    async def _know(self, attempt_id: str, claim: str, secret_hash: str) -> None:
        async with self._database.read() as session:
            known = await _hash(session, attempt_id)
        if known is None and self._callback is not None and self._callback.honours(claim, attempt_id):
            known = await self._database.write_together(lambda session: _remember(session, attempt_id, secret_hash))
        if known is None or not hmac.compare_digest(known, secret_hash):
            raise Unauthenticated("UNAUTHENTICATED")

    async def _renew(self, attempt_ids: Sequence[str]) -> Mapping[str, int]:
        """Terms of those that may go on. Locked in the order in which everybody locks."""
        statement = (
            select(AttemptRow.id, AttemptRow.lease_ttl_s, AttemptRow.state, AttemptRow.epoch)
            .add_columns(AttemptRow.lease_until, AttemptRow.lost_since)
            .add_columns(RunRow.epoch.label("latest_epoch"), RunRow.stop_code)
            .join(RunRow, RunRow.id == AttemptRow.run_id)
            .where(AttemptRow.id.in_(attempt_ids), AttemptRow.lease_ttl_s.is_not(None))
            .order_by(AttemptRow.id)
            .with_for_update(of=AttemptRow)
        )
        async with self._database.write() as session:
            rows = await session.execute(statement)
            terms: dict[str, int] = {
                row.id: row.lease_ttl_s
                for row in rows
                if may_renew(
                    state=AttemptState(row.state),
                    epoch=row.epoch,
                    latest_epoch=row.latest_epoch,
                    is_stopping=row.stop_code is not None,
                    has_grace=row.lease_until is not None and row.lost_since is None,
                )
            }
            now = self._clock.now()
            for attempt_id, ttl_s in terms.items():
                update_last(session, AttemptRow, attempt_id, None, lease_until=now + timedelta(seconds=ttl_s))
        return terms


def _claim(key: bytes, attempt_id: str) -> str:
    return hmac.new(key, f"lease of {attempt_id}".encode(), hashlib.sha256).hexdigest()[:32]


async def _hash(session: AsyncSession, attempt_id: str) -> str | None:
    return await session.scalar(select(AttemptRow.runner_token_hash).where(AttemptRow.id == attempt_id))


async def _remember(session: AsyncSession, attempt_id: str, secret_hash: str) -> str | None:
    """Whose it is now: of two who ask first at once only one is."""
    unknown = (AttemptRow.id == attempt_id, AttemptRow.runner_token_hash.is_(None))
    await session.execute(update(AttemptRow).where(*unknown).values(runner_token_hash=secret_hash))
    return await _hash(session, attempt_id)
