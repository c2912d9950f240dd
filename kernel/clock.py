"""Time is handed in, so that decisions can be replayed and tests need no waiting."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def instant(at: datetime) -> str:
    """As answers write it: RFC 3339 with `Z` (api.md §1)."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
