"""How long drivers take to start on each cluster, so that nobody asks for one much too early or too late.

In memory: it is learned again within a few starts.
"""

LEAST_S, MOST_S = 0.05, 2.0
UNKNOWN_S = 0.5
"""About what an idle head takes."""
_STEP = 1.15


class StartTimes:
    def __init__(self) -> None:
        self._by_cluster: dict[str, float] = {}

    def of(self, cluster_id: str) -> float:
        """Seconds after which about every second driver is found to have started."""
        return self._by_cluster.get(cluster_id, UNKNOWN_S)

    def note(self, cluster_id: str, *, has_started: bool) -> None:
        """What a look at a driver on its way has found."""
        start_s = self.of(cluster_id) * (1 / _STEP if has_started else _STEP)
        self._by_cluster[cluster_id] = min(max(start_s, LEAST_S), MOST_S)
