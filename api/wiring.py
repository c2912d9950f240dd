"""The one place that knows every part: builds adapters, services and loops from the settings, and runs them."""

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from api import migrations
from api.auth import Tokens
from api.cleaning import Cleaning
from api.dashboard.forward import DashboardTransport
from api.local_secrets import credential_keys, write_secret
from api.metrics import Metrics
from api.settings import Settings
from api.stores import blob_store, open_bucket
from api.streaming import News
from cluster_groups.backends.base import ClusterBackend
from cluster_groups.backends.local import LocalBackend
from cluster_groups.backends.local_capacity import machine_capacity
from cluster_groups.backends.local_command import LocalSettings
from cluster_groups.callback import HttpCallbackProbe
from cluster_groups.endpoints import Endpoints
from cluster_groups.model.cluster import LOCAL
from cluster_groups.probe import HttpClusterProbe
from cluster_groups.reconcile.clusters import ClusterReconciler
from cluster_groups.reconcile.health import HealthReconciler
from cluster_groups.reconcile.orphans import end_orphans
from cluster_groups.service.clusters import Clusters
from cluster_groups.service.first_look import FirstLook
from cluster_groups.service.groups import ClusterGroups
from cluster_groups.service.resources import ResourcePools
from cluster_groups.store import clusters as cluster_store
from cluster_groups.submits import FailedSubmits
from kernel.clock import Clock, SystemClock
from kernel.controller import TTL_S, Controller, Duty
from kernel.db import Database
from kernel.lease import Lease
from kernel.loop import Hints, Loop, Observer, Reconciler, Step
from kernel.resources import Resources
from rayjobs import job_store
from rayjobs.attempt_logs import AttemptLogs
from rayjobs.decide.retry import Backoff
from rayjobs.fleet import Fleet, RunsOfClusters, users_of_cluster_group, users_of_resource_group
from rayjobs.gateway.base import JobGateway
from rayjobs.gateway.ray_jobs import RayJobsGateway
from rayjobs.job_service import JobService
from rayjobs.leases import Callback, Leases
from rayjobs.logs import LogKeeper
from rayjobs.node_needs import NodeNeeds
from rayjobs.reconcile.admission import AdmissionReconciler
from rayjobs.reconcile.attempts import AttemptReconciler
from rayjobs.reconcile.logs import LogReconciler
from rayjobs.retention import Keep
from rayjobs.run_service import RUN_NEWS, RunService
from rayjobs.submission import Packages
from runtime_envs.addresses import AllowedHosts
from runtime_envs.archive_data import ArchiveLimits
from runtime_envs.check_uri import UriPolicy
from runtime_envs.credentials import Credentials
from runtime_envs.model import PackageLimits
from runtime_envs.objects import ObjectPackages
from runtime_envs.packages.base import BlobStore
from runtime_envs.service import PackageService, RayUploads
from runtime_envs.uploads import UploadLimits, Uploads
from runtime_envs.volumes import store as volume_store
from runtime_envs.volumes.check import VolumeRules
from runtime_envs.volumes.service import Volumes

log = structlog.get_logger()

LEAST_CAPACITY = Resources(cpu=4, memory_gib=8)
"""The default resource package offers at least this, so that even on a small machine a head and a worker fit: the
amounts of local clusters are logical."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    settings: Settings
    database: Database
    clock: Clock
    hints: Hints
    news: News
    metrics: Metrics
    http: httpx.AsyncClient
    dashboards: DashboardTransport
    blobs: BlobStore
    tokens: Tokens
    credentials: Credentials
    volumes: Volumes
    packages: PackageService
    object_packages: ObjectPackages
    uploads: Uploads
    ray_uploads: RayUploads
    pools: ResourcePools
    clusters: Clusters
    first_look: FirstLook
    groups: ClusterGroups
    jobs: JobService
    runs: RunService
    logs: LogKeeper
    leases: Leases
    node_needs: NodeNeeds
    fleet: Fleet
    loops: tuple[Loop, ...]
    controller: Controller


def wire(
    settings: Settings,
    clock: Clock | None = None,
    observer: Observer = lambda _step: None,
    gateway: JobGateway | None = None,
    own_url: str | None = None,
) -> Services:
    """Everything, at rest: nothing is opened, read or written before `prepare`.

    Local clusters reach the service at `own_url`.

    Tests watch the loops' steps; benchmarks of the service alone bring a gateway to clusters that are not there.
    """
    return _Wiring(settings, clock or SystemClock(), observer, gateway, own_url).services()


class _Wiring:
    """Made once to build `Services`; the attributes are the parts more than one other part needs."""

    def __init__(
        self, settings: Settings, clock: Clock, observer: Observer, gateway: JobGateway | None, own_url: str | None
    ) -> None:
        self.settings, self.clock, self.own_url = settings, clock, own_url
        self.metrics = Metrics(clock)
        self.watch = observer
        self.database = Database(settings.database)
        self.hints, self.news = Hints(), News()
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # else one cluster's would go to the others
        self.http = httpx.AsyncClient(trust_env=False, cookies=no_cookies, limits=httpx.Limits(max_connections=200))
        self.probe = HttpClusterProbe(self.http, clock)
        self.gateway = gateway or RayJobsGateway(self.http)
        self.blobs = blob_store(settings)
        self.limits = PackageLimits(
            archive=ArchiveLimits(max_unpacked_bytes=settings.max_unpacked_bytes),
            max_object_bytes=settings.max_cos_package_bytes,
        )
        keys = credential_keys(settings)
        self.callback = _callback(settings, keys)
        self.credentials = Credentials(self.database, clock, keys, _users_of_credential)
        self.volumes = Volumes(self.database, clock, self.credentials, _volume_rules(settings), _users_of_volume)
        self.backends: Mapping[str, ClusterBackend] = {
            LOCAL: LocalBackend(settings.state_dir / LOCAL, self.probe, LocalSettings(environment=dict(os.environ)))
        }
        self.endpoints = Endpoints(self.database, self.backends, self.credentials)
        self.submits = FailedSubmits(clock)
        self.packages = PackageService(self.database, self.blobs, clock, self.limits, job_store.users_of_package)
        self.logs = LogKeeper(self.database, self.blobs, self.gateway, self.hints, max_bytes=settings.max_log_bytes)
        self.ray_uploads = RayUploads(self.database, self.blobs, clock, self.limits)
        self.runs_of_clusters = RunsOfClusters(self.hints)
        self.hints.connect(RUN_NEWS, self._ring)

    def services(self) -> Services:
        pools = ResourcePools(self.clock, self.hints, list(self.backends), users_of_resource_group)
        clusters = self._clusters(pools)
        groups = ClusterGroups(self.clock, self.hints, users_of_cluster_group, lease_ttl_s=self.settings.lease_ttl_s)
        jobs = JobService(self.clock, _what_nodes_may_fetch(self.settings))
        fleet = Fleet(clusters, groups, pools, self.endpoints, self.submits)
        runs = RunService(self.clock, self.hints, jobs, fleet.reference)
        self.runs_of_clusters.runs = runs
        sources = self._sources()
        loops = self._loops(fleet, sources, AttemptLogs(self.database, self.logs))
        return Services(
            settings=self.settings,
            database=self.database,
            clock=self.clock,
            hints=self.hints,
            news=self.news,
            metrics=self.metrics,
            http=self.http,
            dashboards=DashboardTransport(),
            blobs=self.blobs,
            tokens=Tokens(self.database, self.clock),
            credentials=self.credentials,
            volumes=self.volumes,
            packages=self.packages,
            object_packages=self._object_packages(),
            uploads=Uploads(self.database, self.blobs, self.clock, self.packages, UploadLimits()),
            ray_uploads=self.ray_uploads,
            pools=pools,
            clusters=clusters,
            first_look=FirstLook(self.probe, self.credentials),
            groups=groups,
            jobs=jobs,
            runs=runs,
            logs=self.logs,
            leases=Leases(self.database, self.clock, self.callback),
            node_needs=NodeNeeds(self.database, fleet, self.credentials, sources),
            fleet=fleet,
            loops=loops,
            controller=self._controller(loops),
        )

    def _sources(self) -> Packages:
        return Packages(
            own=self.packages,
            ray_uploads=self.ray_uploads,
            volumes=self.volumes,
            callback=self.callback,
            own_url=self.own_url,
        )

    def _object_packages(self) -> ObjectPackages:
        endpoints = frozenset(self.settings.object_endpoints)
        return ObjectPackages(self.packages, self.credentials, self.limits, open_bucket, endpoints)

    def _clusters(self, pools: ResourcePools) -> Clusters:
        return Clusters(
            self.clock,
            self.hints,
            backends=list(self.backends),
            pools=pools,
            runs=self.runs_of_clusters,
            credentials=self.credentials,
        )

    def _loops(self, fleet: Fleet, packages: Packages, logs: AttemptLogs) -> tuple[Loop, ...]:
        least_s, most_s = self.settings.retry_backoff_min_s, self.settings.retry_backoff_max_s
        backoff = Backoff(least_s=least_s, most_s=max(least_s, most_s))
        reconcilers: list[Reconciler[Any, Any, Any]] = [
            ClusterReconciler(self.backends, self.endpoints, self.runs_of_clusters, self.hints),
            HealthReconciler(self.probe, self.endpoints, self.submits, self.hints, self.clock, self._callback_probe()),
            AdmissionReconciler(fleet, self.hints, self.settings.lease_ttl_s if self.callback else None),
            AttemptReconciler(self.gateway, fleet, packages, logs, self.hints, backoff),
            LogReconciler(fleet, logs),
        ]
        loops = tuple(Loop(one, self.database, self.clock, self._observe) for one in reconcilers)
        for loop in loops:
            self.hints.connect(loop.reconciler.name, loop.hint)
        return loops

    def _callback_probe(self) -> HttpCallbackProbe | None:
        return HttpCallbackProbe(self.http, self.callback.url) if self.callback else None

    def _controller(self, loops: Sequence[Loop]) -> Controller:
        keep = Keep(runs_days=self.settings.run_retention_days, logs_days=self.settings.log_retention_days)
        cleaning = Cleaning(database=self.database, blobs=self.blobs, clock=self.clock, keep=keep)
        duties: dict[str, Duty] = {loop.reconciler.name: loop.run for loop in loops}
        duties |= {"orphans": partial(end_orphans, self.database, self.backends), "cleaning": cleaning.daily}
        return Controller(Lease(self.database, self.clock, "controller", ttl_s=TTL_S), duties)

    def _observe(self, step: Step) -> None:
        self.metrics.watch(step)
        self.watch(step)

    def _ring(self, run_id: str) -> None:
        self.news.ring(RUN_NEWS)
        self.news.ring(run_id)


async def prepare(services: Services) -> str | None:
    """Bring the database up to date and lay what a first start needs (api.md §9).

    Gives the secret of the admin token when it is a new one. When it raises, everything is closed.
    """
    try:
        return await _prepare(services)
    except BaseException:
        await close(services)
        raise


async def close(services: Services) -> None:
    """Nothing stays open that would keep the process from ending."""
    await services.http.aclose()
    await services.dashboards.aclose()
    await services.database.close()


async def _prepare(services: Services) -> str | None:
    await services.database.ping()
    await migrations.upgrade(services.database)
    await services.blobs.prepare()
    async with services.database.write() as session:
        await services.pools.ensure_default(session, _at_least(machine_capacity(), LEAST_CAPACITY))
        await services.clusters.autostart(session)
    async with services.database.write() as session:
        if lost := await services.credentials.reseal(session):
            log.warning("credentials_unreadable", names=lost, advice="restore the key they were stored under")
    return await _keep_admin_token(services)


@asynccontextmanager
async def running(services: Services) -> AsyncIterator[None]:
    """The loops at work, after `prepare`."""
    controller = asyncio.create_task(services.controller.run(), name="controller")
    try:
        yield
    finally:
        services.news.stop()
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)
        await close(services)


def _callback(settings: Settings, keys: Sequence[bytes]) -> Callback | None:
    """Its claims are good for every replica of this installation, and for no other."""
    if settings.callback_url is None:
        return None
    newest, *former = (hmac.digest(key, b"claims of runners", "sha256") for key in keys)
    return Callback(url=settings.callback_url, key=newest, former=tuple(former))


def _what_nodes_may_fetch(settings: Settings) -> UriPolicy:
    return UriPolicy(
        hosts=frozenset(settings.node_fetch_hosts) or None,
        images=settings.image_uris,
        allowed=AllowedHosts.of(settings.fetch_allow),
    )


def _volume_rules(settings: Settings) -> VolumeRules:
    roots = tuple(map(str, settings.local_volume_roots))
    return VolumeRules(
        local_roots=roots if roots or not settings.is_loopback_only else None,
        endpoints=frozenset(settings.object_endpoints),
        hosts=AllowedHosts.of(settings.fetch_allow),
    )


async def _users_of_credential(session: AsyncSession, name: str) -> list[str]:
    return [*await cluster_store.of_credential(session, name), *await volume_store.of_credential(session, name)]


async def _users_of_volume(session: AsyncSession, name: str) -> list[str]:
    return [*await job_store.users_of_volume(session, name), *await cluster_store.of_volume(session, name)]


def _at_least(capacity: Resources, least: Resources) -> Resources:
    cpu, memory_gib = max(capacity.cpu, least.cpu), max(capacity.memory_gib, least.memory_gib)
    return replace(capacity, cpu=cpu, memory_gib=memory_gib)


async def _keep_admin_token(services: Services) -> str | None:
    given = services.settings.admin_token
    file = services.settings.admin_token_file
    kept = file.read_text("utf-8").strip() if file.exists() else None
    async with services.database.write() as session:
        secret = await services.tokens.ensure_admin(session, given.get_secret_value() if given else None, kept)
    if secret is not None and secret != kept:
        write_secret(file, secret)
    return secret
