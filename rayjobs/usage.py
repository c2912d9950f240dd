"""What attempts held and for how long, summed by resource group, job, user or day (R8, api.md §13).

Accounting begins with full allocation. What was reserved before, and what failed attempts took, is told as waste.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, null, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.resources import Resources
from rayjobs.run_store import resources_from_json
from rayjobs.tables import UsageRow

AT_ONCE = 500
"""Rows between which others get their turn."""


class GroupBy(StrEnum):
    RESOURCE_GROUP = "resource_group"
    JOB = "job"
    USER = "user"
    DAY = "day"
    """Of UTC."""


_KEYS = {
    GroupBy.RESOURCE_GROUP: UsageRow.resource_group,
    GroupBy.JOB: UsageRow.job_name,
    GroupBy.USER: UsageRow.created_by,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """From `start` on, up to `end` and no longer."""

    start: datetime
    end: datetime

    def common(self, other: "Interval") -> "Interval":
        return Interval(start=max(self.start, other.start), end=min(self.end, other.end))

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """One attempt: nothing before `held_from`, some of `amount` until `began_at`, then all of it until `ended_at`."""

    run: str
    key: str | None
    """Of its group, job or user; by day there is none."""
    amount: Resources
    held_from: datetime
    began_at: datetime | None
    ended_at: datetime | None
    cold_start_s: float = 0
    in_vain: bool = False


@dataclass(kw_only=True, slots=True)
class Usage:
    """Resources times seconds. `failed_attempts` is part of `used`, the other two come before it."""

    key: str | None
    used: Resources = field(default_factory=Resources)
    gang_hold: Resources = field(default_factory=Resources)
    """Reserved while something else was not: until every task had its place."""
    cold_start: Resources = field(default_factory=Resources)
    """Reserved while the run's own cluster came up."""
    failed_attempts: Resources = field(default_factory=Resources)
    """Used by attempts that another one had to follow."""
    runs: set[str] = field(default_factory=set)


class Sums:
    """Holdings, clipped to the interval and added up by key; what is still held counts until `now`."""

    def __init__(self, interval: Interval, group_by: GroupBy, now: datetime) -> None:
        self._interval = interval
        self._by_day = group_by is GroupBy.DAY
        self._now = now
        self._usages: dict[str | None, Usage] = {}

    def add(self, holding: Holding) -> None:
        end = holding.ended_at or max(self._now, holding.held_from)
        whole = Interval(start=holding.held_from, end=end).common(self._interval)
        came_inside = self._interval.start <= holding.held_from < self._interval.end
        if not whole.seconds and not came_inside:
            return
        for key, window in _days(whole) if self._by_day else [(holding.key, whole)]:
            usage = self._usages.setdefault(key, Usage(key=key))
            usage.runs.add(holding.run)
            _add(usage, holding, end, window)

    @property
    def usages(self) -> list[Usage]:
        """By key, that of things without one first."""
        return sorted(self._usages.values(), key=lambda usage: (usage.key is not None, usage.key or ""))


async def usage_in(session: AsyncSession, interval: Interval, group_by: GroupBy, now: datetime) -> Sequence[Usage]:
    """Held until `now`, whatever lies behind it."""
    statement = select(
        UsageRow.run_id, UsageRow.amount, UsageRow.held_from, UsageRow.began_at, UsageRow.ended_at,
        UsageRow.cold_start_s, UsageRow.in_vain, _KEYS.get(group_by, null()).label("key"),
    ).where(
        UsageRow.held_from < interval.end, or_(UsageRow.ended_at.is_(None), UsageRow.ended_at >= interval.start)
    )  # fmt: skip
    sums = Sums(interval, group_by, now)
    for rows in (await session.execute(statement)).partitions(AT_ONCE):
        for row in rows:
            sums.add(_holding(row))
        await asyncio.sleep(0)
    return sums.usages


def _add(usage: Usage, holding: Holding, end: datetime, window: Interval) -> None:
    complete = holding.began_at or end
    came_up = min(complete, holding.held_from + timedelta(seconds=holding.cold_start_s))
    usage.cold_start += _spent(holding, Interval(start=holding.held_from, end=came_up), window)
    usage.gang_hold += _spent(holding, Interval(start=came_up, end=complete), window)
    used = _spent(holding, Interval(start=complete, end=end), window)
    usage.used += used
    if holding.in_vain:
        usage.failed_attempts += used


def _spent(holding: Holding, part: Interval, window: Interval) -> Resources:
    return holding.amount * part.common(window).seconds


def _days(whole: Interval) -> Iterator[tuple[str, Interval]]:
    start = whole.start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while start <= whole.end:
        following = start + timedelta(days=1)
        window = Interval(start=start, end=following).common(whole)
        if window.start < window.end or whole.start == whole.end:
            yield start.date().isoformat(), window
        start = following


def _holding(row: Row[Any]) -> Holding:
    return Holding(
        run=row.run_id,
        key=row.key,
        amount=resources_from_json(row.amount),
        held_from=row.held_from,
        began_at=row.began_at,
        ended_at=row.ended_at,
        cold_start_s=row.cold_start_s,
        in_vain=row.in_vain,
    )
