"""A cluster backend and a probe that do what a test tells them, and nothing by themselves."""

from collections.abc import Sequence
from dataclasses import replace

from cluster_groups.model.cluster import ClusterSpec, Endpoint, Observed, Phase, ProbeResult
from kernel.clock import Clock
from kernel.errors import Unavailable
from kernel.reasons import Reason

ABSENT = Observed(phase=Phase.ABSENT)


class FakeBackend:
    """Keeps the contract of the local one: what is broken or stopping stays so until it was stopped."""

    def __init__(self) -> None:
        self.seen: dict[str, Observed] = {}
        self.starts: list[str] = []
        self.stops: list[str] = []
        self.refusal: Unavailable | OSError | None = None
        self.slow_stop = False

    async def start(self, spec: ClusterSpec) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.starts.append(spec.id)
        if spec.id not in self.seen:
            self.seen[spec.id] = Observed(phase=Phase.STARTING, nodes_wanted=1 + sum(spec.workers.values()))

    async def observe(self, cluster_id: str) -> Observed:
        return self.seen.get(cluster_id, ABSENT)

    async def stop(self, cluster_id: str) -> None:
        self.stops.append(cluster_id)
        if self.slow_stop and self.seen[cluster_id].phase is not Phase.STOPPING:
            self.seen[cluster_id] = replace(self.seen[cluster_id], phase=Phase.STOPPING)
        else:
            self.seen.pop(cluster_id, None)

    async def owned(self) -> Sequence[str]:
        return list(self.seen)

    def comes_up(self, cluster_id: str, nodes: int = 2) -> None:
        address = f"http://127.0.0.1:8265/{cluster_id}"
        endpoint = Endpoint(address=address, token=f"token-{self.starts.count(cluster_id)}")
        self.seen[cluster_id] = Observed(phase=Phase.UP, nodes_up=nodes, nodes_wanted=nodes, endpoint=endpoint)

    def becomes(self, cluster_id: str, observed: Observed) -> None:
        self.seen[cluster_id] = observed

    def vanishes(self, cluster_id: str) -> None:
        del self.seen[cluster_id]


class FakeProbe:
    """`results` by address; one that is not there passes without nodes. `open` are those that answer anybody."""

    def __init__(self, clock: Clock) -> None:
        self.results: dict[str, ProbeResult] = {}
        self.open: set[str] = set()
        self.asked: list[Endpoint] = []
        self.listed: list[str] = []
        """Addresses of the looks that listed the jobs too."""
        self._clock = clock

    async def probe(self, endpoint: Endpoint, *, with_nodes: bool, with_jobs: bool = False) -> ProbeResult:
        self.asked.append(endpoint)
        if with_jobs:
            self.listed.append(endpoint.address)
        result = self.results.get(endpoint.address, ProbeResult(at=self._clock.now()))
        is_open = endpoint.address in self.open
        if endpoint.token is None and not is_open:
            result = ProbeResult(at=self._clock.now(), failure=Reason(code="PROBE_UNAUTHORIZED"))
        return replace(
            result,
            at=self._clock.now(),
            nodes=result.nodes if with_nodes else None,
            is_open=is_open if with_jobs and result.failure is None else None,
        )


class FakeCallbackProbe:
    """Gives `answer`; counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: bool | None = None
        self.asked = 0

    async def can_call_back(self, endpoint: Endpoint) -> bool | None:
        del endpoint
        self.asked += 1
        return self.answer
