"""Looks at any Ray cluster through its dashboard: does it answer, who is in it, how much is free."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from cluster_groups.model.cluster import Endpoint, Node, ProbeResult
from cluster_groups.node_table import node_table
from kernel.clock import Clock
from kernel.reasons import Reason

TIMEOUT_S = 3.0
"""For the checks together, and once more each for the node table and the list of jobs (policy.md §3)."""

_NODES = "/api/v0/nodes?detail=true&limit=10000"
_USAGE = "/nodes?view=summary"  # the one place that tells what is in use under either of Ray's autoscalers
_METADATA = "/api/v0/cluster_metadata"
_VERSION = "/api/version"
_JOBS = "/api/jobs/"


class HttpClusterProbe:
    """`client` must take nothing from the environment (`trust_env=False`): a netrc entry would replace the token.

    And it must keep no cookies: one could stand for the token where that is left out.
    """

    def __init__(self, client: httpx.AsyncClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def probe(self, endpoint: Endpoint, *, with_nodes: bool, with_jobs: bool = False) -> ProbeResult:
        at, ray_version = self._clock.now(), None
        try:
            ray_version = await self._check(endpoint)
            nodes, python_version = await self._table(endpoint) if with_nodes else (None, None)
            is_open = await self._list_jobs(endpoint) if with_jobs else None
        except _LookFailed as failed:
            return ProbeResult(at=at, failure=failed.reason, ray_version=ray_version)
        return ProbeResult(at=at, ray_version=ray_version, python_version=python_version, nodes=nodes, is_open=is_open)

    async def _check(self, endpoint: Endpoint) -> str:
        async with _at_most(TIMEOUT_S, _VERSION):
            version = (await self._json(endpoint, _VERSION)).get("ray_version")
            health = await self._get(endpoint, "/api/gcs_healthz")
        if not isinstance(version, str):
            raise _LookFailed("PROBE_MALFORMED", path=_VERSION)
        if health.status_code != httpx.codes.OK:
            raise _LookFailed("GCS_UNHEALTHY", status=health.status_code)
        return version

    async def _list_jobs(self, endpoint: Endpoint) -> bool:
        """Whether that works without the token too."""
        async with _at_most(TIMEOUT_S, _JOBS):
            with_token = await self._status(endpoint, _JOBS)
            _need_ok(with_token, _JOBS)
            if endpoint.token is None:
                return True
            return await self._status(replace(endpoint, token=None), _JOBS) == httpx.codes.OK

    async def _table(self, endpoint: Endpoint) -> tuple[tuple[Node, ...], str | None]:
        async with _at_most(TIMEOUT_S, _NODES):
            nodes = await self._json(endpoint, _NODES)
            usage = await self._json_if_served(endpoint, _USAGE)
            metadata = await self._json_if_served(endpoint, _METADATA)
        try:
            return node_table(nodes, usage, self._clock.now()), metadata.get("data", {}).get("pythonVersion")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _LookFailed("PROBE_MALFORMED", path=_NODES) from error

    async def _json_if_served(self, endpoint: Endpoint, path: str) -> Mapping[str, Any]:
        try:
            return await self._json(endpoint, path)
        except _LookFailed as failed:
            if failed.reason.code == "PROBE_STATUS":
                return {}
            raise

    async def _json(self, endpoint: Endpoint, path: str) -> Mapping[str, Any]:
        response = await self._get(endpoint, path)
        _need_ok(response.status_code, path)
        try:
            body = response.json()
        except ValueError as error:
            raise _LookFailed("PROBE_MALFORMED", path=path) from error
        if not isinstance(body, dict):
            raise _LookFailed("PROBE_MALFORMED", path=path)
        return body

    async def _get(self, endpoint: Endpoint, path: str) -> httpx.Response:
        async with self._answer(endpoint, path) as response:
            await response.aread()
        return response

    async def _status(self, endpoint: Endpoint, path: str) -> int:
        """Without the body: there may be a hundred thousand jobs."""
        async with self._answer(endpoint, path) as response:
            return response.status_code

    @asynccontextmanager
    async def _answer(self, endpoint: Endpoint, path: str) -> AsyncIterator[httpx.Response]:
        url = endpoint.address.rstrip("/") + path
        stream = self._client.stream(
            "GET", url, headers=endpoint.authorization, follow_redirects=False, timeout=TIMEOUT_S
        )
        try:
            async with stream as response:
                yield response
        except httpx.TimeoutException as error:
            raise _LookFailed("PROBE_TIMEOUT", path=path, timeout_s=TIMEOUT_S) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _LookFailed("PROBE_UNREACHABLE", error=str(error)) from error


class _LookFailed(Exception):
    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.reason = Reason(code=code, params=params)


def _need_ok(status: int, path: str) -> None:
    if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
        raise _LookFailed("PROBE_UNAUTHORIZED", status=status)
    if status != httpx.codes.OK:
        raise _LookFailed("PROBE_STATUS", status=status, path=path)


@asynccontextmanager
async def _at_most(seconds: float, path: str) -> AsyncIterator[None]:
    """A timeout of httpx bounds each wait for bytes, not their sum."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise _LookFailed("PROBE_TIMEOUT", path=path, timeout_s=seconds) from error
