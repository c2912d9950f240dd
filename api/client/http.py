"""HTTP to one Muster: address, token, and the rule which requests may be sent twice.

A connection that breaks says nothing about whether the request was carried out. Whatever may be repeated safely is
repeated: reads, and creates through their `Idempotency-Key`. A conditional change is not: its own first success would
make the second try fail.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import httpx

from api.client import Json
from api.client.address import is_loopback
from api.client.errors import PASSING_STATUSES, ApiError, FieldError, ServerUnreachable, Silence

RETRY_DELAYS_S = (0.2, 0.6, 1.2)
_TIMEOUT = httpx.Timeout(30, connect=5)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    status: int
    body: Json
    etag: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file sent as the part `file` of a form, read from disk while it is sent."""

    name: str
    content: BinaryIO


class Http:
    def __init__(self, address: str, token: str | None = None, *, language: str = "en") -> None:
        self.address = address.rstrip("/")
        headers = {"Accept-Language": language, "User-Agent": "muster-client"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=f"{self.address}/api/v1",
            headers=headers,
            timeout=_TIMEOUT,
            trust_env=not is_loopback(address),
            verify=address.startswith("https://"),  # reading all the world's certificates takes longer than most calls
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Json:
        return self.call("GET", path, params=params).body

    def text(self, path: str, media_type: str, **params: Any) -> str:
        """Raises as `call` does."""
        _, response = self._exchange(
            lambda: self._client.get(path, params=_given(params), headers={"Accept": media_type}), repeatable=True
        )
        if not response.is_success:
            raise _error(response)
        return response.text

    def post(self, path: str, body: Json | None = None, **params: Any) -> Json:
        return self.call("POST", path, body=body, params=params).body

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        params: Mapping[str, Any] | None = None,
        etag: str | None = None,
        silence_s: float | None = None,
    ) -> Answer:
        """Raises `ApiError` or `ServerUnreachable`. `silence_s`: how long the answer may be waited for."""
        headers = {"If-Match": etag} if etag else {}
        timeout = httpx.Timeout(silence_s, connect=5) if silence_s else _TIMEOUT
        if method == "POST":
            headers["Idempotency-Key"] = uuid.uuid4().hex
        lost, response = self._exchange(
            lambda: self._client.request(
                method, path, json=body, params=_given(params), headers=headers, timeout=timeout
            ),
            repeatable=not etag,
        )
        if method == "DELETE" and lost and response.status_code == httpx.codes.NOT_FOUND:
            return Answer(status=204, body={}, etag=None)  # the request whose answer was lost did it
        return _read(response)

    def upload(self, path: str, upload: Upload, params: Mapping[str, Any] | None = None) -> Answer:
        """Needs no key to be repeated: the same bytes are the same resource."""
        part = {"file": (upload.name, upload.content, "application/zip")}
        send_s = httpx.Timeout(30, connect=5, write=120, read=300)
        _, response = self._exchange(
            lambda: self._client.post(path, files=part, params=_given(params), timeout=send_s), repeatable=True
        )
        return _read(response)

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        content: Iterable[bytes] | None = None,
        params: Mapping[str, Any] | None = None,
        silence_s: float = 30,
    ) -> Answer:
        """Headers, and bytes as they are: those are sent once, what to do when they are lost only the caller knows."""
        timeout = httpx.Timeout(30, connect=5, write=120, read=silence_s)
        _, response = self._exchange(
            lambda: self._client.request(
                method, path, content=content, params=_given(params), headers=headers, timeout=timeout
            ),
            repeatable=content is None,
        )
        return _read(response)

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float = 30,
    ) -> Iterator[Iterator[bytes]]:
        """The body of a GET as it comes in. Never repeated: only the reader knows where to go on."""
        timeout = httpx.Timeout(silence_s, connect=5)
        try:
            with self._client.stream("GET", path, params=_given(params), headers=headers, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                yield response.iter_bytes()
        except httpx.ReadTimeout as error:
            raise Silence(address=self.address, reason=f"nothing came for {silence_s:g} s") from error
        except httpx.TransportError as error:
            raise self._unreachable(error, answer_lost=False) from error

    def _exchange(self, send: Callable[[], httpx.Response], *, repeatable: bool) -> tuple[bool, httpx.Response]:
        """The answer, and whether the answer to an earlier try was lost."""
        lost = False
        for delay_s in (*RETRY_DELAYS_S, None):
            try:
                response = send()
            except httpx.TransportError as error:
                lost = lost or not isinstance(error, _NEVER_SENT)
                if delay_s is None or (lost and not repeatable):
                    raise self._unreachable(error, answer_lost=lost) from error
            else:
                if response.status_code not in PASSING_STATUSES or delay_s is None or not repeatable:
                    return lost, response
            time.sleep(delay_s)
        raise AssertionError("the last try answers or raises")

    def _unreachable(self, error: httpx.TransportError, *, answer_lost: bool) -> ServerUnreachable:
        reason = str(error) or type(error).__name__
        return ServerUnreachable(address=self.address, reason=reason, answer_lost=answer_lost)


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _read(response: httpx.Response) -> Answer:
    if not response.is_success:
        raise _error(response)
    if not response.content:
        return Answer(status=response.status_code, body={}, etag=None)
    body = _json(response)
    if body is None:
        raise _foreign(response)
    return Answer(status=response.status_code, body=body, etag=response.headers.get("ETag"))


def _error(response: httpx.Response) -> ApiError:
    problem = _json(response)
    if problem is None or "code" not in problem:
        return _foreign(response)
    return ApiError(
        code=str(problem["code"]),
        status=response.status_code,
        title=problem.get("title") or "",
        detail=problem.get("detail") or "",
        advice=problem.get("advice"),
        errors=[_field_error(entry) for entry in problem.get("errors") or ()],
        params=problem.get("params") or {},
        request_id=problem.get("request_id"),
    )


def _field_error(entry: Json) -> FieldError:
    return FieldError(
        pointer=entry.get("pointer") or "", code=entry.get("code") or "", detail=entry.get("detail") or ""
    )


def _foreign(response: httpx.Response) -> ApiError:
    """Somebody else speaks at that address, or something before Muster."""
    return ApiError(
        code=f"HTTP_{response.status_code}",
        status=response.status_code,
        title=response.reason_phrase,
        detail=f"{response.request.url} answered {response.status_code} {response.reason_phrase}, not as Muster does",
    )


def _json(response: httpx.Response) -> Json | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
