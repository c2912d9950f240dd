"""What the nodes of a cluster may ask for on behalf of an attempt that is on it, and nobody else may.

They prove by the cluster's own token, which every node has, that they are of it (`node_plugin.terms`).
"""

import hmac
from collections.abc import AsyncIterator, Mapping

from kernel.db import Database
from kernel.errors import NotFound, Unauthenticated
from rayjobs.attempt_store import AttemptStore
from rayjobs.cargo import all_mounts
from rayjobs.fleet import Fleet
from rayjobs.model.run import AttemptState
from rayjobs.snapshot import AttemptSnapshot
from rayjobs.submission import Packages
from runtime_envs.credentials import Credentials, CredentialType
from runtime_envs.model import Package
from runtime_envs.node_plugin import terms
from runtime_envs.packages.bucket import BucketKeys, BucketType
from runtime_envs.volumes.model import Volume

_ON_ITS_CLUSTER = frozenset(
    {
        AttemptState.POSTING,
        AttemptState.PENDING,
        AttemptState.PLACING,
        AttemptState.RUNNING,
        AttemptState.STOPPING,
    }
)


class NodeNeeds:
    """Every call raises Unauthenticated when the bearer is none of the attempt's cluster, or the attempt is over."""

    def __init__(self, database: Database, fleet: Fleet, credentials: Credentials, packages: Packages) -> None:
        self._database = database
        self._fleet = fleet
        self._attempts = AttemptStore(fleet)
        self._credentials = credentials
        self._packages = packages

    async def mount_credentials(self, attempt_id: str, bearer: str) -> Mapping[str, BucketKeys]:
        """By volume, of those that the attempt mounts and that have any."""
        attempt = await self._known(attempt_id, bearer)
        carrier = self._packages.carrier(attempt)
        mounts = all_mounts(attempt.spec.mounts, carrier) if carrier.site.has_plugin else []
        volumes = await self._packages.volumes.named({mount.volume for mount in mounts})
        return {name: await self._keys(volume) for name, volume in volumes.items() if volume.credential}

    async def package(self, attempt_id: str, bearer: str, sha256: str) -> tuple[Package, AsyncIterator[bytes]]:
        """The attempt's own, and no other."""
        attempt = await self._known(attempt_id, bearer)
        package = await self._packages.own.get(attempt.spec.package) if attempt.spec.package else None
        if package is None or package.sha256 != sha256:
            raise NotFound("NOT_FOUND", kind="package", ref=sha256)
        return package, self._packages.own.content(package)

    async def _known(self, attempt_id: str, bearer: str) -> AttemptSnapshot:
        async with self._database.read() as session:
            attempt = (await self._attempts.load(session, [attempt_id])).get(attempt_id)
        if attempt is not None and attempt.view.state in _ON_ITS_CLUSTER:
            endpoint = await self._fleet.endpoint(attempt.view.cluster_id)
            token = endpoint.token if endpoint else None
            if token and hmac.compare_digest(bearer.encode(), terms.bearer(token, attempt_id).encode()):
                return attempt
        raise Unauthenticated("UNAUTHENTICATED")

    async def _keys(self, volume: Volume) -> BucketKeys:
        kind = CredentialType(str(volume.type))
        data = await self._credentials.data(volume.credential or "", kind)
        if data is None:
            raise NotFound("NOT_FOUND", kind=f"{kind} credential", ref=volume.credential)
        return BucketKeys.of(BucketType(str(volume.type)), data)
