"""What runs meet when they are sent to a cluster, told by whoever sends them and kept until the health loop asks.

In memory, like the counts of looks: both loops run in the one process that has the lease.
"""

from collections.abc import Sequence

from cluster_groups.model.health import FailedSubmit
from kernel.clock import Clock


class FailedSubmits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of: dict[str, dict[str, FailedSubmit]] = {}

    def note(self, cluster_id: str, attempt_id: str, why: str) -> None:
        """Only for what is the cluster's own fault, never for what a user sent."""
        failed = FailedSubmit(at=self._clock.now(), attempt=attempt_id, why=why)
        self._of.setdefault(cluster_id, {})[attempt_id] = failed

    def take(self, cluster_id: str) -> Sequence[FailedSubmit]:
        """Since the last time it was asked."""
        return tuple(self._of.pop(cluster_id, {}).values())
