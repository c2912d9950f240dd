"""Clusters that are not there: every job starts at once and ends well when its time is up."""

import time

from cluster_groups.model.cluster import Endpoint
from rayjobs.gateway.base import Delivery, RayJob, RayStatus, Submission

RUNTIME_S = "runtime_s"
"""Key of a job's metadata: how long it takes."""


class StandInGateway:
    def __init__(self) -> None:
        self._over_at: dict[str, float] = {}

    async def deliver(self, endpoint: Endpoint, delivery: Delivery) -> None:
        del endpoint, delivery

    async def submit(self, endpoint: Endpoint, submission: Submission) -> None:
        del endpoint
        self._over_at.setdefault(submission.submission_id, time.monotonic() + float(submission.metadata[RUNTIME_S]))

    async def look(self, endpoint: Endpoint, submission_id: str) -> RayJob | None:
        del endpoint
        over_at = self._over_at.get(submission_id)
        if over_at is None:
            return None
        if time.monotonic() < over_at:
            return RayJob(status=RayStatus.RUNNING, driver_address="http://127.0.0.1:9")
        return RayJob(status=RayStatus.SUCCEEDED, exit_code=0, driver_address="http://127.0.0.1:9")

    async def stop(self, endpoint: Endpoint, submission_id: str) -> None:
        del endpoint
        self._over_at[submission_id] = 0.0

    async def forget(self, endpoint: Endpoint, submission_id: str) -> None:
        del endpoint
        self._over_at.pop(submission_id, None)

    async def read_log(
        self, endpoint: Endpoint, agent_address: str, path: str, *, offset: int, limit_bytes: int
    ) -> bytes:
        del endpoint, agent_address, path, offset, limit_bytes
        return b""
