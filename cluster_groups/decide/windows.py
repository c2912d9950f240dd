"""Whether the windows of a member are open at an instant, and when that changes (policy.md §4).

A window is a matter of wall time: the instant is read off a local clock, and nothing is ever added to one. What changes
the answer is therefore the clock passing a window's edge, or jumping; both are looked up day by day, in UTC.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache

from cluster_groups.model.group import Effect, Window, WindowState
from cluster_groups.zones import zone

ALWAYS_OPEN = WindowState(is_open=True)

_DAY = timedelta(days=1)
_LOOK_DAYS = 400
"""What has not changed within a year and a bit only changes with the dates of a window."""
_WEEK_DAYS = 9
"""After the first of its dates a window has occurred, if it ever does; one more at each end for time zones."""
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Day:
    """One day in UTC: from each of the instants on, the first of which is its beginning, what the windows say."""

    instants: tuple[datetime, ...]
    verdicts: tuple[tuple[bool, int | None], ...]


def window_state(windows: tuple[Window, ...], timezone: str, at: datetime) -> WindowState:
    """Of a member with these windows; `timezone` is that of its group."""
    if not windows:
        return ALWAYS_OPEN
    at = at.astimezone(UTC)
    is_open, decider = _verdict(windows, timezone, at)
    return WindowState(is_open=is_open, id=decider, until=_next_change(windows, timezone, at, is_open=is_open))


def opens_at(windows: tuple[Window, ...], timezone: str, at: datetime) -> datetime | None:
    """When they open the next time, after closing if they are open now; None: never, as far as anybody looks."""
    state = window_state(windows, timezone, at)
    if state.is_open and state.until is not None:
        state = window_state(windows, timezone, state.until)
    return None if state.is_open else state.until


def is_ever_open(windows: tuple[Window, ...], timezone: str, after: datetime) -> bool:
    state = window_state(windows, timezone, after)
    return state.is_open or state.until is not None


def occurs(window: Window) -> bool:
    """Whether its dates have any of its days."""
    if window.date_from is None or window.date_to is None:
        return True
    days = (window.date_to - window.date_from).days + 1
    return any((window.date_from + _DAY * ahead).isoweekday() in window.days for ahead in range(min(days, 7)))


def wall(text: str) -> time:
    return time.fromisoformat(text)


def _verdict(windows: tuple[Window, ...], timezone: str, at: datetime) -> tuple[bool, int | None]:
    """A closed one that matches wins; where there are none but closed ones, they are exceptions from open."""
    first_open = None
    for index, one in enumerate(windows):
        if not _matches(one, timezone, at):
            continue
        if one.effect is Effect.CLOSED:
            return False, index
        first_open = index if first_open is None else first_open
    only_exceptions = all(one.effect is Effect.CLOSED for one in windows)
    return first_open is not None or only_exceptions, first_open


def _matches(window: Window, timezone: str, at: datetime) -> bool:
    local = at.astimezone(zone(window.timezone or timezone))
    now, start, end = local.time(), wall(window.start), wall(window.end)
    today = local.date()
    if start < end:
        return start <= now < end and _may_start_on(window, today)
    return (now >= start and _may_start_on(window, today)) or (now < end and _may_start_on(window, today - _DAY))


def _may_start_on(window: Window, day: date) -> bool:
    return (
        day.isoweekday() in window.days
        and (window.date_from is None or window.date_from <= day)
        and (window.date_to is None or day <= window.date_to)
    )


def _next_change(windows: tuple[Window, ...], timezone: str, at: datetime, *, is_open: bool) -> datetime | None:
    today = _day(windows, timezone, at.date())
    after = bisect_right(today.instants, at)
    for instant, (verdict, _) in zip(today.instants[after:], today.verdicts[after:], strict=True):
        if verdict is not is_open:
            return instant
    return _first_change_after(windows, timezone, at.date(), is_open=is_open)


@lru_cache(_REMEMBERED)
def _first_change_after(windows: tuple[Window, ...], timezone: str, day: date, *, is_open: bool) -> datetime | None:
    for ahead in _days_after(windows, day):
        found = _day(windows, timezone, ahead)
        for instant, (verdict, _) in zip(found.instants, found.verdicts, strict=True):
            if verdict is not is_open:
                return instant
    return None


def _days_after(windows: tuple[Window, ...], day: date) -> Iterator[date]:
    """All for a while, then those on which a window with dates begins or ends to matter."""
    last = date.max.toordinal() - 1
    near = day.toordinal() + _LOOK_DAYS
    yield from (date.fromordinal(number) for number in range(day.toordinal() + 1, min(near, last) + 1))
    far: set[int] = set()
    for edge in (edge for one in windows for edge in (one.date_from, one.date_to) if edge is not None):
        far.update(range(edge.toordinal() - 1, edge.toordinal() + _WEEK_DAYS))
    yield from (date.fromordinal(number) for number in sorted(far) if near < number < last)


@lru_cache(_REMEMBERED)
def _day(windows: tuple[Window, ...], timezone: str, day: date) -> _Day:
    begin = datetime.combine(day, time(), UTC)
    edges = {begin}
    for one in windows:
        edges.update(edge for edge in _edges(one, timezone, day) if begin <= edge < begin + _DAY)
    instants = tuple(sorted(edges))
    return _Day(instants, tuple(_verdict(windows, timezone, instant) for instant in instants))


def _edges(window: Window, timezone: str, day: date) -> Iterator[datetime]:
    """Where the window may open or close around that day; a wall time that occurs twice is there twice."""
    clock = zone(window.timezone or timezone)
    yield from _jumps(timezone if window.timezone is None else window.timezone, day)
    for local in (day - _DAY, day, day + _DAY):
        for at in (wall(window.start), wall(window.end), time()):
            for fold in (0, 1):
                yield datetime.combine(local, at.replace(fold=fold), clock).astimezone(UTC)


@lru_cache(_REMEMBERED)
def _jumps(timezone: str, day: date) -> tuple[datetime, ...]:
    """The instant on that day, if any, at which the offset of the zone changes."""
    clock = zone(timezone)
    low = datetime.combine(day, time(), UTC) - timedelta(seconds=1)
    high = low + _DAY
    before = low.astimezone(clock).utcoffset()
    if high.astimezone(clock).utcoffset() == before:
        return ()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        if middle.astimezone(clock).utcoffset() == before:
            low = middle
        else:
            high = middle
    return (high,)
