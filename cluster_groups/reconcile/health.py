"""Probes each running cluster and keeps the verdict and its node table; writes only what has changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.backends.base import CallbackProbe, ClusterProbe
from cluster_groups.decide.health import PROBE_EVERY_S, after_failed_submits, judge, list_is_due
from cluster_groups.endpoints import EndpointBook
from cluster_groups.model.cluster import Cluster, ClusterState, ProbeResult
from cluster_groups.model.health import Health, HealthStatus
from cluster_groups.service.base import HEALTH_LOOP, QUEUE_KEY, QUEUE_LOOP
from cluster_groups.store import clusters as store
from cluster_groups.submits import FailedSubmits
from cluster_groups.tables import ClusterRow
from kernel.clock import Clock
from kernel.db import Superseded, guarded_update
from kernel.errors import Unavailable
from kernel.events import record
from kernel.loop import Hints, Reconciler

PENDING_S = 1.0
CALLBACK_HOLDS = {True: timedelta(hours=1), False: timedelta(minutes=10)}
"""How long an answer is believed: ways are opened and closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthPlan:
    cluster: Cluster
    version: int


class HealthReconciler(Reconciler[HealthPlan, HealthPlan, Cluster]):
    """The outcome of a look is the cluster as it is then known."""

    name = HEALTH_LOOP

    def __init__(  # noqa: PLR0917 - what it works with, each of its own type
        self,
        probe: ClusterProbe,
        endpoints: EndpointBook,
        submits: FailedSubmits,
        hints: Hints,
        clock: Clock,
        callback: CallbackProbe | None = None,
    ) -> None:
        self._probe = probe
        self._callback = callback
        self._endpoints = endpoints
        self._submits = submits
        self._hints = hints
        self._clock = clock
        self._counted: dict[str, Health] = {}
        """What the row does not have: the counts since the verdict last changed."""
        self._called_back: dict[str, datetime] = {}
        """When each cluster last answered whether it can."""

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        return await store.ids_in(session, [ClusterState.RUNNING])

    async def load(self, session: AsyncSession, key: str) -> HealthPlan | None:
        row = await store.get(session, key)
        if row is None or row.state != ClusterState.RUNNING:
            self._counted.pop(key, None)
            self._called_back.pop(key, None)
            self._submits.take(key)  # on its way up or down that says nothing
            return None
        cluster = store.cluster_of(row)
        counted = self._counted.get(key)
        if counted and (counted.status, counted.since) == (cluster.health.status, cluster.health.since):
            cluster = replace(cluster, health=counted)
        return HealthPlan(cluster=cluster, version=row.version)

    def decide(self, snapshot: HealthPlan, now: datetime) -> HealthPlan:
        del now
        return snapshot

    async def act(self, plan: HealthPlan) -> Cluster:
        cluster = plan.cluster
        if cluster.health.last_result_at is None:  # new, started again or edited: it may answer elsewhere now
            self._endpoints.forget(cluster.id)
        result = await self._look(cluster)
        now = self._clock.now()
        health = after_failed_submits(cluster.health, self._submits.take(cluster.id), now)
        health = judge(health, result, now, minimum_workers=cluster.minimum_workers, allow_open=cluster.allow_open)
        self._counted[cluster.id] = health
        if result is None or result.failure is not None:
            self._endpoints.forget(cluster.id)
        if result is None:
            return replace(cluster, health=health)
        return replace(
            cluster,
            health=health,
            nodes=cluster.nodes if result.nodes is None else result.nodes,
            ray_version=result.ray_version or cluster.ray_version,
            python_version=result.python_version or cluster.python_version,
            can_call_back=await self._can_call_back(cluster) if result.failure is None else cluster.can_call_back,
        )

    def changes(self, plan: HealthPlan, outcome: Cluster) -> bool:
        return _shown(plan.cluster) != _shown(outcome)

    async def apply(self, session: AsyncSession, plan: HealthPlan, outcome: Cluster, now: datetime) -> None:
        columns = store.sight_columns(outcome)
        if not await guarded_update(session, ClusterRow, outcome.id, plan.version, **columns):
            self._counted.pop(outcome.id, None)
            raise Superseded
        health = outcome.health
        if health.status is not plan.cluster.health.status:
            code = health.finding.code if health.finding else None
            record(session, outcome.id, "HEALTH", at=now, status=str(health.status), code=code)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)

    def again_s(self, plan: HealthPlan, outcome: Cluster) -> float | None:
        del plan
        return PENDING_S if outcome.health.status is HealthStatus.PENDING else PROBE_EVERY_S

    async def _look(self, cluster: Cluster) -> ProbeResult | None:
        try:
            endpoint = await self._endpoints.endpoint(cluster.id)
        except Unavailable:  # the backend does not say where it is
            return None
        if endpoint is None:
            return None
        with_jobs = list_is_due(cluster.health, self._clock.now())
        return await self._probe.probe(endpoint, with_nodes=True, with_jobs=with_jobs)

    async def _can_call_back(self, cluster: Cluster) -> bool | None:
        """What was known by an earlier process holds until this one has an answer: the address may be another."""
        if self._callback is None or cluster.on_demand_run is not None:
            return None
        now, known, answered_at = self._clock.now(), cluster.can_call_back, self._called_back.get(cluster.id)
        if known is not None and answered_at is not None and now - answered_at < CALLBACK_HOLDS[known]:
            return known
        endpoint = await self._endpoints.endpoint(cluster.id)
        answer = await self._callback.can_call_back(endpoint) if endpoint else None
        if answer is None:
            return known
        self._called_back[cluster.id] = now
        return answer


def _shown(cluster: Cluster) -> tuple[object, ...]:
    code = cluster.health.failure.code if cluster.health.failure else None
    return (
        cluster.health.status,
        code,
        cluster.nodes,
        cluster.ray_version,
        cluster.python_version,
        cluster.can_call_back,
    )
