"""Questions of a node to Muster: plain HTTP of the standard library, past all proxies, each wait within its time."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

from .terms import Credential, Origin, SetupError, node_bearer

Taken = TypeVar("Taken")

_TIMEOUT_S = 30
_PATIENCE_S = 120.0
"""From the first failure on: a service that is started anew is back by then. Ray would remember the failure longer."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0
_BLOCK_BYTES = 1024 * 1024
_MAX_PROBLEM_BYTES = 64 * 1024
_OK, _SERVER_ERROR = 200, 500


class _NotNow(SetupError):
    """Another try may do."""


def credentials_of(origin: Origin) -> dict[str, Credential]:
    """By volume, of those of the attempt that have any."""
    answer = asked(origin, f"/runner/v1/attempts/{origin.attempt}/mount-credentials", b"".join)
    try:
        found: dict[str, Credential] = json.loads(answer)["credentials"]
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"what answers at {origin.callback} is not Muster") from error
    return found


def asked(origin: Origin, path: str, take: Callable[[Iterator[bytes]], Taken]) -> Taken:
    """What `take` makes of the answer's blocks. It starts over with each try."""
    pause_s, until = _FIRST_PAUSE_S, None
    while True:
        try:
            return take(_answered(origin, path))
        except _NotNow:
            until = until or time.monotonic() + _PATIENCE_S
            if time.monotonic() + pause_s > until:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _answered(origin: Origin, path: str) -> Iterator[bytes]:
    if origin.callback is None:
        raise SetupError("this service has no callback_url, so its nodes cannot ask it for anything")
    url = urlsplit(origin.callback)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {node_bearer(origin.attempt)}"}
    connection = kind(url.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", url.path.rstrip("/") + path, headers=headers)
        response = connection.getresponse()
        if response.status != _OK:
            refused = _NotNow if response.status >= _SERVER_ERROR else SetupError
            raise refused(f"Muster at {url.netloc} refuses this node what the run needs: {_words(response)}")
        while block := response.read(_BLOCK_BYTES):
            yield block
        if response.length:  # `read` says nothing of an end that came too early
            raise http.client.IncompleteRead(b"", response.length)
    except (OSError, http.client.HTTPException) as error:
        raise _NotNow(f"this node does not get what the run needs from Muster at {url.netloc}: {error!r}") from error
    finally:
        connection.close()


def _words(response: http.client.HTTPResponse) -> str:
    """Of a problem that Muster tells; who else answers has a status only."""
    try:
        problem = json.loads(response.read(_MAX_PROBLEM_BYTES))
        return f"{' '.join(problem['detail'].split())} ({problem['code']})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"HTTP {response.status}"
