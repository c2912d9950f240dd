"""Time that passes when a test says so."""

from datetime import UTC, datetime, timedelta


class FakeClock:
    def __init__(self) -> None:
        self._now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def pass_s(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
