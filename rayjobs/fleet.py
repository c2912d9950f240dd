"""What the loops of runs need of clusters, groups and quotas, and what clusters need to know of their runs."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from cluster_groups.endpoints import EndpointBook
from cluster_groups.model.cluster import Cluster, ClusterConfig, ClusterKind, ClusterRef, Endpoint
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.group import ClusterGroup
from cluster_groups.model.quota import ClusterUse, ResourceGroup
from cluster_groups.service.clusters import Clusters
from cluster_groups.service.groups import ClusterGroups
from cluster_groups.service.resources import ResourcePools
from cluster_groups.submits import FailedSubmits
from kernel.actor import Actor
from kernel.loop import Hints
from rayjobs import run_store
from rayjobs.advanced import cluster_parameters
from rayjobs.model.job import JobSpec, Origin
from rayjobs.run_service import ATTEMPT_LOOP, RunService
from rayjobs.tables import IS_NOT_ENDED, IS_UNSETTLED, AttemptRow, JobRevisionRow, JobRow, RunRow


class Fleet:
    def __init__(
        self,
        clusters: Clusters,
        groups: ClusterGroups,
        pools: ResourcePools,
        endpoints: EndpointBook,
        submits: FailedSubmits,
    ) -> None:
        self.submits = submits
        self._clusters = clusters
        self._groups = groups
        self._pools = pools
        self._endpoints = endpoints

    async def views(self, session: AsyncSession, ids: Collection[str] | None = None) -> Sequence[ClusterView]:
        """All, or those of these that are not deleted, in a session that writes nothing."""
        return await self._clusters.views(session, ids)

    async def groups(self, session: AsyncSession) -> Mapping[str, ClusterGroup]:
        return await self._groups.by_name(session)

    async def resource_groups(self, session: AsyncSession) -> Mapping[str, ResourceGroup]:
        return await self._pools.groups_by_name(session)

    async def quota_held(self, session: AsyncSession) -> Mapping[str, tuple[ClusterUse, ...]]:
        """By resource group."""
        return await self._clusters.usage(session)

    async def create_for_run(self, session: AsyncSession, run: RunRow, spec: JobSpec) -> Cluster:
        """The cluster of an on-demand run, on its way to being started."""
        config = ClusterConfig(
            name="",
            kind=ClusterKind.MANAGED,
            resource_package=spec.resource_package,
            resource_group=spec.resource_group,
            image=spec.image,
            head=spec.head,
            worker_groups=spec.worker_groups,
            advanced_parameters=cluster_parameters(spec.advanced_parameters),
        )
        return await self._clusters.create_for_run(session, config, run_id=run.id, created_by=run.created_by)

    async def release(self, session: AsyncSession, cluster_id: str) -> None:
        await self._clusters.release(session, cluster_id)

    async def reference(self, session: AsyncSession, name: str) -> ClusterRef | None:
        """None: there is no cluster of this name (any more)."""
        return await self._clusters.reference(session, name)

    async def endpoint(self, cluster_id: str) -> Endpoint | None:
        """None while nobody can tell where it answers."""
        return await self._endpoints.endpoint(cluster_id)


class RunsOfClusters:
    """The answer of this layer to `cluster_groups.service.base.ClusterRuns`.

    `runs` is given after both are made: each of the two services needs the other.
    """

    runs: RunService

    def __init__(self, hints: Hints) -> None:
        self._hints = hints

    async def live(self, session: AsyncSession, cluster_id: str) -> Sequence[str]:
        return await run_store.live_runs_on(session, cluster_id)

    async def settling(self, session: AsyncSession, cluster_id: str) -> Sequence[str]:
        return await run_store.settling_on(session, cluster_id)

    async def last_ended_at(self, session: AsyncSession, cluster_id: str) -> datetime | None:
        return await session.scalar(select(func.max(RunRow.ended_at)).where(RunRow.cluster_id == cluster_id))

    async def end(self, session: AsyncSession, cluster_id: str, actor: Actor) -> None:
        await self.runs.end_runs_on(session, cluster_id, actor)

    async def wake(self, session: AsyncSession, cluster_id: str) -> None:
        statement = select(AttemptRow.id).where(AttemptRow.cluster_id == cluster_id, IS_NOT_ENDED)
        for attempt_id in await session.scalars(statement):
            self._hints.send(session, ATTEMPT_LOOP, attempt_id)


async def jobs_on_cluster(session: AsyncSession, name: str) -> list[str]:
    return sorted(await session.scalars(_jobs("cluster", name)))


async def users_of_resource_group(session: AsyncSession, name: str) -> list[str]:
    """Jobs whose present definition names it, and runs that are not over."""
    return await _users(session, "resource_group", RunRow.resource_group, name)


async def users_of_cluster_group(session: AsyncSession, name: str) -> list[str]:
    return await _users(session, "cluster_group", RunRow.cluster_group, name)


async def _users(session: AsyncSession, field: str, column: InstrumentedAttribute[str | None], name: str) -> list[str]:
    runs = select(RunRow.id).where(column == name, IS_UNSETTLED)
    return sorted(await session.scalars(_jobs(field, name).union(runs)))


def _jobs(field: str, name: str) -> Select[str]:
    present = (JobRevisionRow.job_id == JobRow.id) & (JobRevisionRow.revision == JobRow.revision)
    return (
        select(JobRow.name)
        .join(JobRevisionRow, present)
        .where(
            JobRow.deleted_at.is_(None),
            JobRow.origin == Origin.API,  # a job of the Ray endpoint is only as alive as its run
            JobRevisionRow.spec[field].as_string() == name,
        )
    )
