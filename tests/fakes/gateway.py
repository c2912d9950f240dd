"""Clusters' Jobs APIs and node agents that do what a test tells them, and nothing by themselves."""

import asyncio
from collections.abc import Mapping
from typing import Any

from cluster_groups.model.cluster import Endpoint
from rayjobs.gateway.base import ClusterUnreachable, Delivery, RayJob, RayStatus, RequestRefused, Submission


class FakeGateway:
    """`jobs` and `sent` by submission id, `files` by the agent's address and the path below its log folder."""

    def __init__(self) -> None:
        self.jobs: dict[str, RayJob] = {}
        self.sent: dict[str, Submission] = {}
        self.stopped: list[str] = []
        self.files: dict[tuple[str, str], bytes] = {}
        self.is_down = False
        self.hangs = False
        """Submissions get no answer."""
        self.silent: set[str] = set()
        """Ids of clusters that do not answer."""
        self.silent_agents: set[str] = set()

    async def deliver(self, endpoint: Endpoint, delivery: Delivery) -> None:
        del delivery
        self._answer(endpoint)

    async def submit(self, endpoint: Endpoint, submission: Submission) -> None:
        self._answer(endpoint)
        if self.hangs:
            await asyncio.Event().wait()
        self.sent.setdefault(submission.submission_id, submission)
        self.jobs.setdefault(submission.submission_id, RayJob(status=RayStatus.PENDING))

    async def look(self, endpoint: Endpoint, submission_id: str) -> RayJob | None:
        self._answer(endpoint)
        return self.jobs.get(submission_id)

    async def stop(self, endpoint: Endpoint, submission_id: str) -> None:
        self._answer(endpoint)
        self.stopped.append(submission_id)

    async def forget(self, endpoint: Endpoint, submission_id: str) -> None:
        self._answer(endpoint)
        job = self.jobs.get(submission_id)
        if job and job.status in {RayStatus.PENDING, RayStatus.RUNNING}:
            raise RequestRefused(500, f"job '{submission_id}' is in a non-terminal state")
        self.jobs.pop(submission_id, None)

    async def read_log(
        self, endpoint: Endpoint, agent_address: str, path: str, *, offset: int, limit_bytes: int
    ) -> bytes:
        self._answer(endpoint)
        if agent_address in self.silent_agents:
            raise ClusterUnreachable(agent_address)
        return self.files.get((agent_address, path), b"")[offset : offset + limit_bytes]

    def append(self, agent_address: str, path: str, data: bytes) -> None:
        self.files[agent_address, path] = self.files.get((agent_address, path), b"") + data

    def becomes(self, submission_id: str, status: RayStatus, **facts: Any) -> None:
        known: Mapping[str, Any] = {"driver_address": self.jobs[submission_id].driver_address}
        self.jobs[submission_id] = RayJob(status=status, **{**known, **facts})

    def _answer(self, endpoint: Endpoint) -> None:
        if self.is_down or endpoint.address.rpartition("/")[2] in self.silent:
            raise ClusterUnreachable("nobody answers")
