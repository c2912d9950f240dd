"""A look at somebody else's cluster before it is attached: what could never be healthy is not registered."""

from cluster_groups.backends.base import ClusterProbe
from cluster_groups.check import check_cluster
from cluster_groups.decide.health import unfit
from cluster_groups.endpoints import endpoint_of_attached
from cluster_groups.model.cluster import ClusterConfig, ClusterKind
from cluster_groups.service.base import Credentials
from kernel.actor import Actor, Role
from kernel.errors import InvalidInput


class FirstLook:
    """To be taken outside of any transaction, as the cluster may need seconds to answer."""

    def __init__(self, probe: ClusterProbe, credentials: Credentials) -> None:
        self._probe = probe
        self._credentials = credentials

    async def refuse_unfit(self, actor: Actor, config: ClusterConfig, present: ClusterConfig | None = None) -> None:
        """One that does not answer passes: the rules hold at its first probe too. `present` is it before an edit."""
        actor.need(Role.OPERATOR)  # who may not attach clusters has nothing looked at either
        if config.kind is not ClusterKind.ATTACHED or check_cluster(config):
            return
        if present is not None and _looked_at(present) == _looked_at(config):
            return
        endpoint = await endpoint_of_attached(config, self._credentials)
        if endpoint is None:
            return
        result = await self._probe.probe(endpoint, with_nodes=False, with_jobs=True)
        if reason := unfit(result, allow_open=config.allow_open):
            raise InvalidInput(reason.code, pointer="/address", **reason.params)


def _looked_at(config: ClusterConfig) -> tuple[object, ...]:
    return config.address, config.credential, config.allow_open
