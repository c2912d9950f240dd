"""Whether a process on a cluster's head reaches Muster: a tiny Ray job tells, as only the cluster can know."""

import asyncio
import secrets
import shlex

import httpx

from cluster_groups.model.cluster import Endpoint

TIMEOUT_S = 10.0
_TRY = (
    "import sys; from http.client import HTTPConnection, HTTPSConnection; from urllib.parse import urlsplit; "
    "url = urlsplit(sys.argv[1]); "
    'there = (HTTPSConnection if url.scheme == "https" else HTTPConnection)(url.netloc, timeout=10); '
    'there.request("GET", url.path + "/healthz"); '
    "sys.exit(there.getresponse().status != 200)"
)
"""As the runner does it: past all proxies, with the standard library of whatever Python is there."""
_VERDICTS = {"SUCCEEDED": True, "FAILED": False}


class HttpCallbackProbe:
    """Each question is a job of its own: Ray may bring back, as FAILED, one that is deleted soon after its end."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._asked: dict[Endpoint, str] = {}
        """The jobs that have not answered yet."""
        self._entrypoint = f"exec python3 -I -S -c {shlex.quote(_TRY)} {shlex.quote(url)}"

    async def can_call_back(self, endpoint: Endpoint) -> bool | None:
        """None while it is not known: ask again."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._ask(endpoint)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError):
            return None

    async def _ask(self, endpoint: Endpoint) -> bool | None:
        job_id = self._asked.get(endpoint)
        if job_id is None:
            self._asked[endpoint] = job_id = f"muster-callback-{secrets.token_hex(4)}"
            job = {"submission_id": job_id, "entrypoint": self._entrypoint}
            await self._send(endpoint, "POST", "/api/jobs/", json=job)
            return None
        path = f"/api/jobs/{job_id}"
        answer = await self._send(endpoint, "GET", path)
        status = answer.json().get("status") if answer.status_code == httpx.codes.OK else "UNKNOWN"
        if status in {"PENDING", "RUNNING"}:
            return None
        del self._asked[endpoint]
        await self._send(endpoint, "DELETE", path)
        return _VERDICTS.get(status)

    async def _send(
        self, endpoint: Endpoint, method: str, path: str, json: dict[str, str] | None = None
    ) -> httpx.Response:
        url = endpoint.address.rstrip("/") + path
        return await self._client.request(method, url, headers=endpoint.authorization, json=json, timeout=TIMEOUT_S)
