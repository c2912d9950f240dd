"""Where the Jobs API of each cluster answers, and with which token."""

from collections.abc import Mapping
from typing import Protocol

from cluster_groups.backends.base import ClusterBackend
from cluster_groups.model.cluster import ClusterConfig, ClusterKind, Endpoint
from cluster_groups.service.base import Credentials
from cluster_groups.store import clusters as store
from kernel.db import Database


class EndpointBook(Protocol):
    async def endpoint(self, cluster_id: str) -> Endpoint | None:
        """None while nobody can tell. Of an attached cluster also when it is deleted: its last runs end there."""
        ...

    def forget(self, cluster_id: str) -> None:
        """What was known did not answer, or the cluster has a new life: look it up again."""
        ...


class Endpoints:
    """Remembers what it found, so that asking costs nothing while a cluster is well."""

    def __init__(self, database: Database, backends: Mapping[str, ClusterBackend], credentials: Credentials) -> None:
        self._database = database
        self._backends = backends
        self._credentials = credentials
        self._known: dict[str, Endpoint] = {}

    async def endpoint(self, cluster_id: str) -> Endpoint | None:
        known = self._known.get(cluster_id)
        if known is None:
            known = await self._look_up(cluster_id)
        if known is not None:
            self._known[cluster_id] = known
        return known

    def forget(self, cluster_id: str) -> None:
        self._known.pop(cluster_id, None)

    async def _look_up(self, cluster_id: str) -> Endpoint | None:
        async with self._database.read() as session:
            row = await store.get(session, cluster_id)
        if row is None:
            return None
        if row.kind == ClusterKind.ATTACHED:
            return await endpoint_of_attached(store.cluster_of(row), self._credentials)
        backend = self._backends.get(row.backend or "")
        return (await backend.observe(cluster_id)).endpoint if backend else None


async def endpoint_of_attached(config: ClusterConfig, credentials: Credentials) -> Endpoint | None:
    """None while its credential cannot be read: without its token it would only refuse us."""
    token = await credentials.secret(config.credential) if config.credential else None
    if config.credential and token is None:
        return None
    return Endpoint(address=(config.address or "").rstrip("/"), token=token)
