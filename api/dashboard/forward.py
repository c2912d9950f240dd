"""Sends one request on to a cluster's dashboard and its answer back, a piece in memory at a time.

Over the bare transport: a client would follow redirects, keep cookies, and add headers of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urljoin

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.dashboard.headers import from_ray, to_ray
from api.dashboard.masking import masked
from cluster_groups.model.cluster import Endpoint
from kernel.errors import TooLarge, Unavailable

MAX_AT_ONCE = 32
MAX_SENT_BYTES = 2**20
MAX_JSON_BYTES = 32 * 2**20
"""What is to be masked is read whole; the state of 10,000 tasks is 20 MB."""
MAX_WHOLE_AT_ONCE = 3
ANSWER_S, WHOLE_S = 60.0, 300.0
_TIMEOUT = httpx.Timeout(30.0, connect=3.0, pool=10.0)
_JSON = "application/json"
_REFUSALS = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


class DashboardTransport(httpx.AsyncHTTPTransport):
    """Of its own, so that dashboards never take the connections of the loops; and turns at reading an answer whole."""

    def __init__(self) -> None:
        super().__init__(trust_env=False, limits=httpx.Limits(max_connections=MAX_AT_ONCE))
        self.reading_whole = asyncio.Semaphore(MAX_WHOLE_AT_ONCE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked of which dashboard."""

    cluster: str
    endpoint: Endpoint
    path: str
    query: str
    by_operator: bool

    @property
    def root(self) -> str:
        return self.endpoint.address.rstrip("/") + "/"

    @property
    def url(self) -> httpx.URL:
        return httpx.URL(self.root + self.path, query=self.query.encode())

    def unanswered(self, reason: object) -> Unavailable:
        return Unavailable("DASHBOARD_UNREACHABLE", cluster=self.cluster, reason=str(reason) or repr(reason))


async def forward(transport: DashboardTransport, request: Request, asked: Asked) -> Response:
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await transport.handle_async_request(_outgoing(request, asked))
            try:
                return await _returned(answer, request, asked, transport.reading_whole)
            except BaseException:
                await answer.aclose()
                raise
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise asked.unanswered(error) from error


def _outgoing(request: Request, asked: Asked) -> httpx.Request:
    headers = to_ray(request.headers, asked.endpoint.token, as_browser=not asked.by_operator)
    body = _bounded(request) if asked.by_operator else None
    extensions = {"timeout": _TIMEOUT.as_dict()}
    return httpx.Request(request.method, asked.url, headers=headers, content=body, extensions=extensions)


async def _bounded(request: Request) -> AsyncIterator[bytes]:
    sent_bytes = 0
    async for piece in request.stream():
        sent_bytes += len(piece)
        if sent_bytes > MAX_SENT_BYTES:
            raise TooLarge("BODY_TOO_LARGE", limit_bytes=MAX_SENT_BYTES)
        yield piece


async def _returned(answer: httpx.Response, request: Request, asked: Asked, turns: asyncio.Semaphore) -> Response:
    if answer.status_code in _REFUSALS:  # the browser's own right was looked at before
        async with turns:
            text = (await _whole(answer, asked)).decode("utf-8", "replace")
            raise asked.unanswered(f"HTTP {answer.status_code}: {text[:300]}")
    headers = from_ray(answer.headers)
    if answer.has_redirect_location:
        headers["location"] = _location(answer.headers["location"], request, asked)
    if headers.get("content-type", "").startswith(_JSON):
        async with turns:
            body = await _whole(answer, asked)
            await answer.aclose()
            return Response(await _masked(body, asked), answer.status_code, headers)
    return _Stream(answer, headers)


def _location(told: str, request: Request, asked: Asked) -> str:
    """The same place seen through Muster; the browser is sent nowhere else."""
    target = urljoin(str(asked.url), told)
    if not target.startswith(asked.root):
        raise asked.unanswered("it sends to another address")
    return request.url.path.removesuffix(asked.path) + target.removeprefix(asked.root)


async def _whole(answer: httpx.Response, asked: Asked) -> bytes:
    pieces, size_bytes = [], 0
    async for piece in answer.aiter_bytes():
        pieces.append(piece)
        size_bytes += len(piece)
        if size_bytes > MAX_JSON_BYTES:
            raise Unavailable("DASHBOARD_ANSWER_TOO_LARGE", cluster=asked.cluster, limit_bytes=MAX_JSON_BYTES)
    return b"".join(pieces)


async def _masked(body: bytes, asked: Asked) -> bytes:
    try:
        return await asyncio.to_thread(masked, body)
    except ValueError as error:
        raise asked.unanswered(f"no JSON: {error}") from error


class _Stream(StreamingResponse):
    """Ends the dashboard's side with ours, however ours ends."""

    def __init__(self, answer: httpx.Response, headers: dict[str, str]) -> None:
        self._answer = answer
        super().__init__(self._pieces(), answer.status_code, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._answer.aclose()

    async def _pieces(self) -> AsyncIterator[bytes]:
        deadline = time.monotonic() + WHOLE_S
        async for piece in self._answer.aiter_bytes():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the dashboard's answer took more than {WHOLE_S:g} s")
            yield piece
