"""What can go wrong between a client and Muster.

ClientError
├── ApiError           Muster answered, and the answer is no
├── ServerUnreachable  nobody answered; whether a request was carried out may be unknown
│   └── Silence        the connection stands, but nothing came for as long as the caller would wait
└── WaitTimedOut       the state that was waited for did not come in time
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PASSING_STATUSES = frozenset({429, 502, 503, 504})
"""Answers of a server, or of a proxy before it, that may be another one soon."""


class ClientError(Exception):
    """Root of all errors the client raises on purpose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldError:
    """One finding about the body that was sent; `pointer` is a JSON pointer into it."""

    pointer: str
    code: str
    detail: str


@dataclass(kw_only=True)
class ApiError(ClientError):
    """The problem that Muster described (`application/problem+json`)."""

    code: str
    status: int
    title: str = ""
    detail: str = ""
    advice: str | None = None
    errors: Sequence[FieldError] = ()
    params: dict[str, Any] = field(default_factory=dict)
    request_id: str | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.detail or self.title}"

    @property
    def is_passing(self) -> bool:
        """Whether the same question may well be answered in a moment."""
        return self.status in PASSING_STATUSES


@dataclass(kw_only=True)
class ServerUnreachable(ClientError):
    address: str
    reason: str
    answer_lost: bool = False
    """The request went out and may have been carried out all the same."""

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}"


class Silence(ServerUnreachable):
    pass


class WaitTimedOut(ClientError):
    """The time the caller gave is over; what was waited for goes on without him."""
