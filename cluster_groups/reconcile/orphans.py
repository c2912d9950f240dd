"""Ends what backends still hold of clusters that nobody knows any more, as after a restored database."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from cluster_groups.backends.base import ClusterBackend
from cluster_groups.model.cluster import Phase
from cluster_groups.store import clusters as store
from kernel.db import Database

log = structlog.get_logger()

PATIENCE_S = 60.0
PAUSE_S = 0.5


async def end_orphans(database: Database, backends: Mapping[str, ClusterBackend]) -> Sequence[str]:
    """To be called once, when the loops start."""
    # Asked before the rows are read: a row is there before its cluster is, so no new cluster passes for an orphan.
    owned = {cluster_id: backend for backend in backends.values() for cluster_id in await backend.owned()}
    async with database.read() as session:
        known = {cluster.id for cluster in await store.live(session)}
    orphans = sorted(owned.keys() - known)
    await asyncio.gather(*(_end(owned[cluster_id], cluster_id) for cluster_id in orphans))
    return orphans


async def _end(backend: ClusterBackend, cluster_id: str) -> None:
    log.warning("orphan_cluster_found", cluster=cluster_id)
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while (await backend.observe(cluster_id)).phase is not Phase.ABSENT:
        if asyncio.get_running_loop().time() > deadline:
            log.error("orphan_cluster_stays", cluster=cluster_id)
            return
        await backend.stop(cluster_id)
        await asyncio.sleep(PAUSE_S)
