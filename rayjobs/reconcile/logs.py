"""The loop that copies the logs of running attempts while they grow; an ended attempt collects the rest itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import Node
from kernel.loop import Reconciler
from rayjobs.attempt_logs import AttemptLogs, Gathered, Place
from rayjobs.fleet import Fleet
from rayjobs.gateway.base import GatewayError
from rayjobs.model.run import AttemptState
from rayjobs.run_service import LOG_LOOP
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, RunRow

GROWING = frozenset({AttemptState.PLACING, AttemptState.RUNNING, AttemptState.STOPPING})
BUSY_S = 0.5
QUIET_S = 3.0
EACH_S = 0.02
"""Logs of a large gang are looked at less often, so that its tasks do not take all there is of time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Growing:
    attempt_id: str
    cluster_id: str
    agent_address: str
    nodes: Sequence[Node] | None
    """Of a gang's cluster."""


class LogReconciler(Reconciler[Growing, Growing, Gathered]):
    name = LOG_LOOP
    concurrency = 16

    def __init__(self, fleet: Fleet, logs: AttemptLogs) -> None:
        self._fleet = fleet
        self._logs = logs

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        return list(await session.scalars(select(AttemptRow.id).where(IS_NOT_ENDED, AttemptRow.state.in_(GROWING))))

    async def load(self, session: AsyncSession, key: str) -> Growing | None:
        return (await self.load_many(session, [key])).get(key)

    async def load_many(self, session: AsyncSession, keys: Sequence[str]) -> Mapping[str, Growing]:
        columns = (AttemptRow.id, AttemptRow.cluster_id, AttemptRow.driver_address, RunRow.task_groups)
        growing = (
            AttemptRow.state.in_(GROWING),
            AttemptRow.driver_address.is_not(None),
            AttemptRow.lost_since.is_(None),
        )
        statement = select(*columns).join(RunRow, RunRow.id == AttemptRow.run_id)
        rows = (await session.execute(statement.where(AttemptRow.id.in_(keys), *growing))).all()
        views = await self._fleet.views(session, {row.cluster_id for row in rows if row.task_groups})
        nodes = {view.id: view.nodes for view in views}
        return {
            row.id: Growing(
                attempt_id=row.id,
                cluster_id=row.cluster_id,
                agent_address=row.driver_address,
                nodes=nodes.get(row.cluster_id) if row.task_groups else None,
            )
            for row in rows
        }

    def decide(self, snapshot: Growing, now: datetime) -> Growing:
        del now
        return snapshot

    async def act(self, plan: Growing) -> Gathered:
        endpoint = await self._fleet.endpoint(plan.cluster_id)
        if endpoint is None:
            return Gathered()
        place = Place(
            attempt_id=plan.attempt_id, endpoint=endpoint, driver_address=plan.agent_address, nodes=plan.nodes
        )
        try:
            return await self._logs.copy(place, is_over=False)
        except GatewayError:
            return Gathered()  # whether the cluster is lost is for the attempts loop to say

    def changes(self, plan: Growing, outcome: Gathered) -> bool:
        """The keeper stores what it copied itself."""
        del plan, outcome
        return False

    async def apply(self, session: AsyncSession, plan: Growing, outcome: Gathered, now: datetime) -> None:
        raise NotImplementedError

    def again_s(self, plan: Growing, outcome: Gathered) -> float | None:
        del plan
        return max(BUSY_S if outcome.new_bytes else QUIET_S, outcome.open * EACH_S)
