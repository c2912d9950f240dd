"""The seam to whatever makes clusters. Calls return at once and are made again: intent first, then observation."""

from collections.abc import Sequence
from typing import Protocol

from cluster_groups.model.cluster import ClusterSpec, Endpoint, Observed, ProbeResult


class ClusterBackend(Protocol):
    """Makes, watches and removes Ray clusters. Every call is idempotent and known by the cluster's id."""

    async def start(self, spec: ClusterSpec) -> None:
        """Bring the cluster towards `spec`; adopts what a former process of Muster already started."""
        ...

    async def observe(self, cluster_id: str) -> Observed:
        """Where it stands now; ABSENT once nothing of it is left."""
        ...

    async def stop(self, cluster_id: str) -> None:
        """End every process of this cluster and of no other; ABSENT follows."""
        ...

    async def owned(self) -> Sequence[str]:
        """Ids of all clusters this backend still holds something of, to find orphans."""
        ...


class ClusterProbe(Protocol):
    """Looks at any Ray cluster, managed or attached, through its own HTTP."""

    async def probe(self, endpoint: Endpoint, *, with_nodes: bool, with_jobs: bool = False) -> ProbeResult:
        """Never raises for what the cluster does: a failed look is a result (timeout 3 s, policy.md §3).

        `with_jobs` also lists the jobs, and tells whether that takes a token.
        """
        ...


class CallbackProbe(Protocol):
    """Whether runs on a cluster could ask Muster for leases."""

    async def can_call_back(self, endpoint: Endpoint) -> bool | None:
        """Never raises for what the cluster does. None while it is not known: a later look brings the answer."""
        ...
