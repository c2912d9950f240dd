"""The right to run, for as long as Muster has last said so (design.md, "At most one").

It is taken before anything of the user's begins and renewed while that goes on. A term counts from the moment of
asking, by our own clock: the answer may have been long on its way, and we may have slept.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from .clock import now_s
from .spec import LeaseTerms

PASS_ON_S = 5
"""How often the guards on other nodes are told until when it lasts."""
_RENEW_S = 15
_RENEWALS = 4
"""At least so many tries in each term, however short it is."""
_ASK_AGAIN_S = 1
_TIMEOUT_S = 10
_MAX_ANSWER_BYTES = 2**16
_OK, _CONFLICT = 200, 409


class Lease:
    """Over once `until` has passed: what is late is not taken back, whatever Muster says."""

    def __init__(self, terms: LeaseTerms) -> None:
        self.until = 0.0
        self._terms = terms
        self._secret = os.urandom(32).hex()
        self._is_refused = False
        self._term_s = 0.0

    @property
    def is_over(self) -> bool:
        return now_s() >= self.until

    def take(self) -> bool:
        """False: Muster refuses it, or was not to be reached in time."""
        give_up_at = now_s() + self._terms.take_within_s
        while True:
            self._ask()
            if not self.is_over:
                return True
            if self._is_refused or now_s() >= give_up_at:
                return False
            time.sleep(_ASK_AGAIN_S)

    def keep(self, tell: Callable[[float], None] = lambda _until: None) -> None:
        """Renew it from now on, in a thread; `tell` hears until when it lasts, each time that changes."""
        import threading  # noqa: PLC0415 - jobs without a lease start without it

        threading.Thread(target=self._keep, args=(tell,), name="lease", daemon=True).start()

    def _keep(self, tell: Callable[[float], None]) -> None:
        while True:
            time.sleep(min(_RENEW_S, self._term_s / _RENEWALS))
            if self.is_over:
                return
            before = self.until
            self._ask()
            if self.until != before:
                tell(self.until)

    def _ask(self) -> None:
        """Only Muster's own words change anything: what stands in between may answer as well, with any status."""
        asked_at = now_s()
        status, answer = _post(self._terms, self._secret)
        if status == _CONFLICT and answer.get("code") == "LEASE_REFUSED":
            self._is_refused, self.until = True, min(self.until, now_s())
        elif status == _OK and isinstance(answer.get("ttl_s"), int):
            self._term_s = answer["ttl_s"]
            self.until = asked_at + self._term_s


def _post(terms: LeaseTerms, secret: str) -> tuple[int, dict[str, Any]]:
    """Past all proxies; (0, {}) when no answer came that makes sense."""
    import http.client  # noqa: PLC0415 - slow to load, and jobs without a lease have no use for them
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(terms.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    try:
        connection = kind(parts.netloc, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", parts.path, json.dumps({"claim": terms.claim}), headers)
            response = connection.getresponse()
            answer = json.loads(response.read(_MAX_ANSWER_BYTES))
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException):
        return 0, {}
    return response.status, answer if isinstance(answer, dict) else {}
