"""Questions of a node to Muster: plain HTTP of the standard library, past all proxies, each wait within its time."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlsplit

from .terms import Credential, Origin, SetupError, node_bearer

_TIMEOUT_S = 30
_BLOCK_BYTES = 1024 * 1024
_OK = 200


def credentials_of(origin: Origin) -> dict[str, Credential]:
    """By volume, of those of the attempt that have any."""
    answer = b"".join(answered(origin, f"/runner/v1/attempts/{origin.attempt}/mount-credentials"))
    try:
        found: dict[str, Credential] = json.loads(answer)["credentials"]
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"what answers at {origin.callback} is not Muster") from error
    return found


def answered(origin: Origin, path: str) -> Iterator[bytes]:
    """The answer's bytes, block by block."""
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
            raise SetupError(f"Muster at {url.netloc} refuses this node what the run needs: HTTP {response.status}")
        while block := response.read(_BLOCK_BYTES):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise SetupError(f"this node does not get what the run needs from Muster at {url.netloc}: {error!r}") from error
    finally:
        connection.close()
