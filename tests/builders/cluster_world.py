"""The whole of cluster_groups on a real database, with a backend, a probe and runs that a test commands."""

from functools import partial
from typing import Any

from sqlalchemy import select

from cluster_groups.endpoints import Endpoints
from cluster_groups.model.cluster import Cluster
from cluster_groups.model.quota import GroupConfig, PackageConfig
from cluster_groups.reconcile.clusters import ClusterReconciler
from cluster_groups.reconcile.health import HealthReconciler
from cluster_groups.service.clusters import Clusters
from cluster_groups.service.groups import ClusterGroups
from cluster_groups.service.resources import ResourcePools
from cluster_groups.submits import FailedSubmits
from kernel.actor import Actor, Role
from kernel.db import Database, Superseded
from kernel.events import EventRow
from kernel.loop import Hints, Loop
from kernel.resources import Resources
from tests.fakes.backend import FakeBackend, FakeCallbackProbe, FakeProbe
from tests.fakes.clock import FakeClock
from tests.fakes.runs import FakeCredentials, FakeRuns

ADMIN = Actor(user="root", role=Role.ADMIN)
OPERATOR = Actor(user="ops", role=Role.OPERATOR)
SUBMITTER = Actor(user="ann", role=Role.SUBMITTER)


class ClusterWorld:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = FakeClock()
        self.backend = FakeBackend()
        self.probe = FakeProbe(self.clock)
        self.runs = FakeRuns()
        self.users: dict[str, list[str]] = {}
        self.hinted: list[tuple[str, str]] = []
        self.hints = hints = Hints()
        for topic in ("clusters", "health", "queue"):
            hints.connect(topic, partial(self._note, topic))
        backends = {"local": self.backend}
        self.credentials = FakeCredentials(tok="s3cret")
        self.pools = ResourcePools(self.clock, hints, backends, self._users_of)
        self.groups = ClusterGroups(self.clock, hints, self._users_of)
        self.clusters = Clusters(
            self.clock, hints, backends=backends, pools=self.pools, runs=self.runs, credentials=self.credentials
        )
        self.endpoints = Endpoints(database, backends, self.credentials)
        reconciler = ClusterReconciler(backends, self.endpoints, self.runs, hints)
        self.cluster_loop = Loop(reconciler, database, self.clock)
        self.submits = FailedSubmits(self.clock)
        self.callback: FakeCallbackProbe | None = None
        self.health_loop = self.new_health_loop()

    def new_health_loop(self) -> Loop:
        """As after a restart of the service: what was only in memory is gone."""
        reconciler = HealthReconciler(self.probe, self.endpoints, self.submits, self.hints, self.clock, self.callback)
        return Loop(reconciler, self.database, self.clock)

    async def with_default_pool(self, cpu: float = 16, memory_gib: float = 64) -> "ClusterWorld":
        async with self.database.write() as session:
            await self.pools.ensure_default(session, Resources(cpu=cpu, memory_gib=memory_gib))
        return self

    async def with_pool(self, package: str, group: str, quota: Resources) -> None:
        async with self.database.write() as session:
            config = PackageConfig(name=package, cpu=quota.cpu, memory_gib=quota.memory_gib)
            await self.pools.create_package(session, ADMIN, config)
            await self.pools.create_group(
                session, ADMIN, GroupConfig(name=group, resource_package=package, quota=quota)
            )

    async def do(self, verb: str, *arguments: Any, actor: Actor = OPERATOR, **options: Any) -> Any:
        """One use case of clusters in its own transaction: `await world.do("start", "c1")`."""
        async with self.database.write() as session:
            return await getattr(self.clusters, verb)(session, actor, *arguments, **options)

    async def cluster(self, ref: str) -> Cluster:
        async with self.database.read() as session:
            return await self.clusters.get(session, ref)

    async def look(self, cluster_id: str) -> float | None:
        """One step of the cluster loop; the seconds until the next."""
        return await _step(self.cluster_loop, cluster_id)

    async def probe_once(self, cluster_id: str) -> float | None:
        return await _step(self.health_loop, cluster_id)

    async def running(self, config: Any) -> Cluster:
        """Made, started and up."""
        cluster: Cluster = await self.do("create", config)
        await self.do("start", cluster.id)
        await self.look(cluster.id)
        self.backend.comes_up(cluster.id)
        await self.look(cluster.id)
        return await self.cluster(cluster.id)

    async def events(self, target_id: str) -> list[str]:
        async with self.database.read() as session:
            statement = select(EventRow.type).where(EventRow.target_id == target_id).order_by(EventRow.seq)
            return list(await session.scalars(statement))

    def _note(self, topic: str, key: str) -> None:
        self.hinted.append((topic, key))

    async def _users_of(self, session: Any, name: str) -> list[str]:
        del session
        return self.users.get(name, [])


async def _step(loop: Loop, key: str) -> float | None:
    try:
        return await loop._step(key)
    except Superseded:
        return 0.0
