"""The seam to a cluster's Jobs API and to the node agents that serve logs."""

import ipaddress
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit

from cluster_groups.model.cluster import Endpoint


class RayStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True, slots=True)
class RayJob:
    """What `GET /api/jobs/{id}` says, as far as Muster goes by it."""

    status: RayStatus
    message: str | None = None
    error_type: str | None = None
    exit_code: int | None = None
    driver_address: str | None = None
    """HTTP address of the node agent beside the driver; known from RUNNING on."""
    ended_at: datetime | None = None
    """By the clock of the head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The body of `POST /api/jobs/`, less what is empty."""

    submission_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any]
    metadata: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """`entrypoint_num_cpus` and its kin."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """Bytes the submission refers to as `gcs://<name>`."""

    name: str
    size_bytes: int
    open: Callable[[], AsyncIterator[bytes]]

    @property
    def uri(self) -> str:
        return f"gcs://{self.name}"


class GatewayError(Exception):
    """Root of what can go wrong between Muster and a cluster."""


class ClusterUnreachable(GatewayError):
    """No answer: whether the request was carried out is unknown."""


class RequestRefused(GatewayError):
    """The cluster answered no."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status
        self.text = text


def agent_address(told: str | None) -> str | None:
    """Only what looks like a node agent's: any job can write into its cluster's records, and Muster fetches there."""
    if told is None:
        return None
    try:
        parts = urlsplit(told)
        ip = ipaddress.ip_address(parts.hostname or "")
        port = parts.port
    except ValueError:
        return None
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or port is None or parts.scheme != "http":
        return None
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    return f"http://{host}:{port}"


class JobGateway(Protocol):
    """Every call raises ClusterUnreachable or RequestRefused and nothing else."""

    async def deliver(self, endpoint: Endpoint, delivery: Delivery) -> None:
        """Make `delivery.uri` usable there for at least the next 300 s; sends nothing that is there already."""
        ...

    async def submit(self, endpoint: Endpoint, submission: Submission) -> None:
        """Idempotent by the submission id: a second call for one the cluster already has is a success."""
        ...

    async def look(self, endpoint: Endpoint, submission_id: str) -> RayJob | None:
        """None: the cluster answered and does not know it."""
        ...

    async def stop(self, endpoint: Endpoint, submission_id: str) -> None:
        """Ask for the stop; that it is over shows in `look`. Unknown or already over is fine."""
        ...

    async def forget(self, endpoint: Endpoint, submission_id: str) -> None:
        """Delete Ray's own record of a job that is over; refused while it is not. Unknown is fine."""
        ...

    async def read_log(
        self, endpoint: Endpoint, agent_address: str, path: str, *, offset: int, limit_bytes: int
    ) -> bytes:
        """Bytes of a file below the session's log folder from `offset` on; empty when there are none (yet)."""
        ...
