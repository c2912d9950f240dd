"""The Jobs API of a real Ray cluster, and its node agents, through httpx.

Facts it rests on (Ray 2.59 and 2.60): success is exactly 200; a second POST of an id answers 500 with "already
exists"; a GET of a package pins it for 600 s; an agent serves the session's log folder under `/logs/` with `Range`.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx

from cluster_groups.model.cluster import Endpoint
from rayjobs.gateway.base import (
    ClusterUnreachable,
    Delivery,
    RayJob,
    RayStatus,
    RequestRefused,
    Submission,
    agent_address,
)

ANSWER_S, SUBMIT_S, UPLOAD_S = 10.0, 30.0, 300.0
"""Bounds of a whole call; httpx itself bounds only each wait for bytes."""
PIN_S = 300.0
"""Half of the 600 s for which Ray keeps a package after it was asked for, used or not."""

_NOT_RAYS = frozenset({404, 502, 503, 504})
"""Statuses by which something before Ray, or in its place, answers."""


class RayJobsGateway:
    """One for all clusters: connections are kept per address, tokens go with each call."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._pinned: dict[tuple[Endpoint, str], float] = {}

    async def deliver(self, endpoint: Endpoint, delivery: Delivery) -> None:
        key = (endpoint, delivery.name)
        if time.monotonic() - self._pinned.get(key, float("-inf")) < PIN_S:
            return
        path = f"/api/packages/gcs/{delivery.name}"
        answer = await self._send(endpoint, "GET", path)
        if _is_unknown(answer):
            headers = {"Content-Length": str(delivery.size_bytes), "Content-Type": "application/octet-stream"}
            answer = await self._send(
                endpoint, "PUT", path, within_s=UPLOAD_S, content=delivery.open(), headers=headers
            )
        _need_ok(answer)
        self._pinned[key] = time.monotonic()
        self._drop_old_pins()

    async def submit(self, endpoint: Endpoint, submission: Submission) -> None:
        body = {
            "submission_id": submission.submission_id,
            "entrypoint": submission.entrypoint,
            "runtime_env": dict(submission.runtime_env),
            "metadata": dict(submission.metadata),
            **submission.options,
        }
        answer = await self._send(endpoint, "POST", "/api/jobs/", within_s=SUBMIT_S, json=body)
        already = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and "already exists" in answer.text
        if already:
            return
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and "No available agent" in answer.text:
            raise ClusterUnreachable("the head's agent takes no submissions (yet)")
        _need_ok(answer)

    async def look(self, endpoint: Endpoint, submission_id: str) -> RayJob | None:
        answer = await self._send(endpoint, "GET", f"/api/jobs/{submission_id}")
        if _is_unknown(answer):
            return None
        _need_ok(answer)
        try:
            return _ray_job(answer.json())
        except (ValueError, KeyError, TypeError) as error:  # something else answers at this address now
            raise ClusterUnreachable(f"no answer of Ray's: {error!r}") from error

    async def stop(self, endpoint: Endpoint, submission_id: str) -> None:
        answer = await self._send(endpoint, "POST", f"/api/jobs/{submission_id}/stop")
        if not _is_unknown(answer):
            _need_ok(answer)

    async def forget(self, endpoint: Endpoint, submission_id: str) -> None:
        answer = await self._send(endpoint, "DELETE", f"/api/jobs/{submission_id}")
        if not _is_unknown(answer):
            _need_ok(answer)

    async def read_log(
        self, endpoint: Endpoint, agent_address: str, path: str, *, offset: int, limit_bytes: int
    ) -> bytes:
        agent = Endpoint(address=agent_address, token=endpoint.token)
        headers = {"Range": f"bytes={offset}-{offset + limit_bytes - 1}"}
        answer = await self._send(agent, "GET", f"/logs/{path}", headers=headers)
        if answer.status_code in {httpx.codes.NOT_FOUND, httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE}:
            return b""
        if answer.status_code != httpx.codes.PARTIAL_CONTENT:  # a whole file may be larger than memory
            raise RequestRefused(answer.status_code, "the node agent does not answer ranges")
        return answer.content[:limit_bytes]

    async def _send(
        self, endpoint: Endpoint, method: str, path: str, *, within_s: float = ANSWER_S, **request: Any
    ) -> httpx.Response:
        headers = {**request.pop("headers", {}), **endpoint.authorization}
        url = endpoint.address.rstrip("/") + path
        timeout = httpx.Timeout(within_s, connect=min(within_s, 3.0))
        try:
            async with asyncio.timeout(within_s):
                return await self._client.request(method, url, headers=headers, timeout=timeout, **request)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise ClusterUnreachable(f"{type(error).__name__}: {error}") from error

    def _drop_old_pins(self) -> None:
        oldest = time.monotonic() - PIN_S
        self._pinned = {key: at for key, at in self._pinned.items() if at > oldest}


def _is_unknown(answer: httpx.Response) -> bool:
    """In Ray's own words: the 404 of a proxy, or of whatever else is at this address now, says nothing of a job."""
    return answer.status_code == httpx.codes.NOT_FOUND and "does not exist" in answer.text


def _need_ok(answer: httpx.Response) -> None:
    if answer.status_code == httpx.codes.OK:
        return
    if answer.status_code in _NOT_RAYS:
        raise ClusterUnreachable(f"HTTP {answer.status_code}: {answer.text[:200]}")
    raise RequestRefused(answer.status_code, answer.text)


def _ray_job(body: Mapping[str, Any]) -> RayJob:
    return RayJob(
        status=RayStatus(body["status"]),
        message=body.get("message"),
        error_type=body.get("error_type"),
        exit_code=body.get("driver_exit_code"),
        driver_address=agent_address(body.get("driver_agent_http_address")),
        ended_at=_instant(body.get("end_time")),
    )


def _instant(milliseconds: int | None) -> datetime | None:
    """A head's record may hold anything: what is no time is none."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None
