"""The loop that copies the logs of running attempts while they grow; an ended attempt collects the rest itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.loop import Reconciler
from rayjobs.fleet import Fleet
from rayjobs.gateway.base import GatewayError
from rayjobs.logs import LogKeeper, Source, driver_log
from rayjobs.model.run import AttemptState
from rayjobs.run_service import LOG_LOOP
from rayjobs.tables import IS_NOT_ENDED, AttemptRow

GROWING = frozenset({AttemptState.RUNNING, AttemptState.STOPPING})
BUSY_S = 0.5
QUIET_S = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Growing:
    attempt_id: str
    cluster_id: str
    agent_address: str


class LogReconciler(Reconciler[Growing, Growing, bool]):
    """The outcome says whether there was anything new."""

    name = LOG_LOOP
    concurrency = 16

    def __init__(self, fleet: Fleet, logs: LogKeeper) -> None:
        self._fleet = fleet
        self._logs = logs

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        return list(await session.scalars(select(AttemptRow.id).where(IS_NOT_ENDED, AttemptRow.state.in_(GROWING))))

    async def load(self, session: AsyncSession, key: str) -> Growing | None:
        row = await session.get(AttemptRow, key)
        if row is None or row.state not in GROWING or row.driver_address is None:
            return None
        return Growing(attempt_id=row.id, cluster_id=row.cluster_id, agent_address=row.driver_address)

    def decide(self, snapshot: Growing, now: datetime) -> Growing:
        del now
        return snapshot

    async def act(self, plan: Growing) -> bool:
        endpoint = await self._fleet.endpoint(plan.cluster_id)
        if endpoint is None:
            return False
        source = Source(
            attempt_id=plan.attempt_id,
            endpoint=endpoint,
            agent_address=plan.agent_address,
            path=driver_log(plan.attempt_id),
        )
        try:
            return (await self._logs.copy(source, is_over=False)).new_bytes > 0
        except GatewayError:
            return False  # whether the cluster is lost is for the attempts loop to say

    def changes(self, plan: Growing, outcome: bool) -> bool:  # noqa: FBT001 - the outcome of this loop is a yes or no
        """The keeper stores what it copied itself."""
        del plan, outcome
        return False

    async def apply(self, session: AsyncSession, plan: Growing, outcome: bool, now: datetime) -> None:  # noqa: FBT001
        raise NotImplementedError

    def again_s(self, plan: Growing, outcome: bool) -> float | None:  # noqa: FBT001
        del plan
        return BUSY_S if outcome else QUIET_S
