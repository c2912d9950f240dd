"""Brings each cluster to the state somebody asked for, and notices when it leaves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.backends.base import ClusterBackend
from cluster_groups.decide.health import health_in
from cluster_groups.decide.lifecycle import Sight, Standing, Want, standing_after, want_of
from cluster_groups.endpoints import EndpointBook
from cluster_groups.model.cluster import (
    CLUSTER_TRANSITIONS,
    Cluster,
    ClusterKind,
    ClusterState,
    Observed,
    Phase,
)
from cluster_groups.service.base import CLUSTER_LOOP, HEALTH_LOOP, QUEUE_KEY, QUEUE_LOOP, ClusterRuns, busy_with
from cluster_groups.store import clusters as store
from cluster_groups.tables import ClusterRow
from kernel.db import Superseded, guarded_update
from kernel.errors import Unavailable
from kernel.events import record
from kernel.loop import Hints, Reconciler
from kernel.reasons import Reason
from kernel.states import move

START_TIMEOUT_S = 600.0
MOVING_S = 0.5
RUNNING_S = 5.0

_GOING = frozenset({ClusterState.STOPPING, ClusterState.DELETING})
_REPAIRABLE = frozenset({Phase.UP, Phase.STARTING})
_UNSETTLED = (ClusterState.STARTING, ClusterState.RUNNING, ClusterState.FAILED, *_GOING)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSnapshot:
    sight: Sight
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterPlan:
    snapshot: ClusterSnapshot
    want: Want
    now: datetime

    @property
    def cluster(self) -> Cluster:
        return self.snapshot.sight.cluster


class ClusterReconciler(Reconciler[ClusterSnapshot, ClusterPlan, Standing]):
    name = CLUSTER_LOOP
    relist_s = 10.0

    def __init__(
        self,
        backends: Mapping[str, ClusterBackend],
        endpoints: EndpointBook,
        runs: ClusterRuns,
        hints: Hints,
        *,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._backends = backends
        self._endpoints = endpoints
        self._runs = runs
        self._hints = hints
        self._start_timeout_s = start_timeout_s

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        return await store.ids_in(session, _UNSETTLED)

    async def load(self, session: AsyncSession, key: str) -> ClusterSnapshot | None:
        row = await store.get(session, key)
        if row is None:
            return None
        cluster = store.cluster_of(row)
        sight = Sight(cluster=cluster)
        if cluster.state in _GOING:
            sight = await self._going(session, cluster, forced=row.force_stop)
        elif cluster.state is ClusterState.RUNNING and cluster.idle_stop_s is not None:
            sight = replace(sight, idle_since=await self._idle_since(session, cluster))
        return ClusterSnapshot(sight=sight, version=row.version)

    def decide(self, snapshot: ClusterSnapshot, now: datetime) -> ClusterPlan | None:
        want = want_of(snapshot.sight, now)
        return None if want is None else ClusterPlan(snapshot=snapshot, want=want, now=now)

    async def act(self, plan: ClusterPlan) -> Standing:
        observed = await self._towards(plan.cluster, plan.want)
        return standing_after(plan.snapshot.sight, observed, plan.now, self._start_timeout_s)

    def changes(self, plan: ClusterPlan, outcome: Standing) -> bool:
        cluster = plan.cluster
        return outcome != Standing(
            state=cluster.state,
            reason=cluster.state_reason,
            nodes_up=cluster.nodes_up,
            nodes_wanted=cluster.nodes_wanted,
        )

    async def apply(self, session: AsyncSession, plan: ClusterPlan, outcome: Standing, now: datetime) -> None:
        cluster, moved = plan.cluster, outcome.state is not plan.cluster.state
        columns: dict[str, Any] = {"nodes_up": outcome.nodes_up, "nodes_wanted": outcome.nodes_wanted}
        if moved:
            state = move(CLUSTER_TRANSITIONS, cluster.state, outcome.state)
            columns |= store.state_columns(state, now, outcome.reason, health_in(state, cluster, now))
        else:
            columns["state_reason"] = store.reason_column(outcome.reason)
        if not await guarded_update(session, ClusterRow, cluster.id, plan.snapshot.version, **columns):
            raise Superseded
        self._endpoints.forget(cluster.id)
        self._tell(session, cluster, outcome, now)
        if moved:
            self._hints.send(session, HEALTH_LOOP, cluster.id)
            self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        await self._runs.wake(session, cluster.id)

    def again_s(self, plan: ClusterPlan, outcome: Standing) -> float | None:
        if outcome.state is not plan.cluster.state:
            return 0.0
        if outcome.state is ClusterState.RUNNING:
            return RUNNING_S if outcome.nodes_up >= outcome.nodes_wanted else MOVING_S
        clean = outcome.state is ClusterState.FAILED and outcome.nodes_wanted == 0
        return None if clean else MOVING_S

    async def _going(self, session: AsyncSession, cluster: Cluster, *, forced: bool) -> Sight:
        # Forgetting somebody else's cluster ends nothing there: forced or not, its runs are stopped first.
        asks_runs = not (forced and cluster.kind is ClusterKind.MANAGED)
        held_back = asks_runs and bool(await self._runs.live(session, cluster.id))
        # The run that a cluster was made for lets go of it itself, when it has everything.
        is_settling = cluster.on_demand_run is None and bool(await self._runs.settling(session, cluster.id))
        return Sight(cluster=cluster, held_back=held_back, is_settling=is_settling)

    async def _idle_since(self, session: AsyncSession, cluster: Cluster) -> datetime | None:
        if await busy_with(self._runs, session, cluster.id):
            return None
        ended_at = await self._runs.last_ended_at(session, cluster.id)
        return max(ended_at or cluster.state_since, cluster.state_since)

    async def _towards(self, cluster: Cluster, want: Want) -> Observed:
        if cluster.kind is ClusterKind.ATTACHED:
            return Observed(phase=Phase.ABSENT if want is Want.ABSENT else Phase.UP)  # nothing of it is ours
        backend = self._backends.get(cluster.backend or "")
        if backend is None:
            raise Unavailable("BACKEND_NOT_AVAILABLE", backend=cluster.backend, available=sorted(self._backends))
        if cluster.state is ClusterState.STARTING and want is Want.UP:
            return await _start(backend, cluster)
        observed = await backend.observe(cluster.id)
        if want is Want.ABSENT and observed.phase is not Phase.ABSENT:
            await backend.stop(cluster.id)
            return await backend.observe(cluster.id)
        if want is Want.UP and observed.phase in _REPAIRABLE and observed.nodes_up < observed.nodes_wanted:
            await backend.start(cluster.spec)
        return observed

    def _tell(self, session: AsyncSession, cluster: Cluster, outcome: Standing, now: datetime) -> None:
        reason = outcome.reason
        why = {} if reason is None else reason.told
        if outcome.state is not cluster.state:
            record(session, cluster.id, str(outcome.state), at=now, **why)
        elif outcome.state in {ClusterState.STARTING, ClusterState.RUNNING}:
            record(session, cluster.id, store.NODES, at=now, up=outcome.nodes_up, wanted=outcome.nodes_wanted, **why)


async def _start(backend: ClusterBackend, cluster: Cluster) -> Observed:
    """A refusal of the backend is shown to people while the start's time runs on."""
    try:
        await backend.start(cluster.spec)
        return await backend.observe(cluster.id)
    except Unavailable as error:
        reason = Reason(code=error.code, params=error.params)
    except OSError as error:
        reason = Reason(code="BACKEND_FAILED", params={"reason": str(error)})
    return Observed(phase=Phase.STARTING, nodes_up=cluster.nodes_up, nodes_wanted=cluster.nodes_wanted, reason=reason)
