"""Windows of members: wall time, midnight, daylight saving, and when the answer changes (policy.md §4)."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

import pytest

from cluster_groups.decide.windows import is_ever_open, opens_at, window_state
from cluster_groups.model.group import Effect, Window
from cluster_groups.zones import UnknownZoneError, zone

NEW_YORK, SHANGHAI = "America/New_York", "Asia/Shanghai"
NORMAL, SPRING, FALL = date(2026, 6, 3), date(2026, 3, 8), date(2026, 11, 1)
"""Days in New York; the clock jumps from 2 to 3 in spring, and from 2 to 1 in fall."""
MONDAY = date(2026, 11, 30)
MINUTE = timedelta(minutes=1)


def w(start: str, end: str, **fields: Any) -> Window:
    return Window(start=start, end=end, **fields)


def at(text: str, timezone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone(timezone)).astimezone(UTC)


def is_open(text: str, *windows: Window, timezone: str = "UTC") -> bool:
    return window_state(windows, timezone, at(text, timezone)).is_open


class TestWallTime:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("09:59", False), ("10:00", True), ("11:59:59.9", True), ("12:00", False)],
    )
    def test_half_open(self, text: str, *, expected: bool) -> None:
        assert is_open(f"2026-11-30 {text}", w("10:00", "12:00")) is expected

    def test_no_windows_are_always_open(self) -> None:
        state = window_state((), "UTC", at("2026-11-30 12:00"))
        assert (state.is_open, state.id, state.until) == (True, None, None)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2026-11-27 21:59", False),  # Friday
            ("2026-11-27 22:00", True),
            ("2026-11-28 03:00", True),  # Saturday, of Friday's window
            ("2026-11-28 06:00", False),
            ("2026-11-28 22:00", False),
            ("2026-11-27 03:00", False),  # of Thursday's, which is none
        ],
    )
    def test_past_midnight_belongs_to_the_day_it_started_on(self, text: str, *, expected: bool) -> None:
        assert is_open(text, w("22:00", "06:00", days=(5,))) is expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2026-11-30 07:59", False),
            ("2026-11-30 08:00", True),
            ("2026-12-01 07:59", True),
            ("2026-12-01 08:00", False),
        ],
    )
    def test_equal_ends_are_a_day(self, text: str, *, expected: bool) -> None:
        assert is_open(text, w("08:00", "08:00", days=(1,))) is expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2026-11-30 23:00", False),
            ("2026-12-01 23:00", True),
            ("2026-12-03 01:00", True),  # it started on the last of its dates
            ("2026-12-03 23:00", False),
        ],
    )
    def test_dates_are_those_it_starts_on(self, text: str, *, expected: bool) -> None:
        dates = {"date_from": date(2026, 12, 1), "date_to": date(2026, 12, 2)}
        assert is_open(text, w("22:00", "02:00", **dates)) is expected

    def test_the_clock_of_the_group_or_its_own(self) -> None:
        night = w("00:00", "06:00")
        assert is_open("2026-11-30 03:00", night, timezone=SHANGHAI)
        there = window_state((w("00:00", "06:00", timezone=NEW_YORK),), SHANGHAI, at("2026-11-30 03:00", NEW_YORK))
        assert there.is_open

    def test_shanghai_next_change(self) -> None:
        state = window_state((w("20:00", "08:00"),), SHANGHAI, at("2026-11-30 12:00"))  # 20:00 there
        assert (state.is_open, state.until) == (True, at("2026-12-01 00:00"))


class TestOverlaps:
    DAY, LUNCH = w("08:00", "18:00"), w("12:00", "13:00", effect=Effect.CLOSED)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("11:00", (True, 0)), ("12:30", (False, 1)), ("13:00", (True, 0)), ("19:00", (False, None))],
    )
    def test_a_closed_one_wins(self, text: str, expected: tuple[bool, int | None]) -> None:
        state = window_state((self.DAY, self.LUNCH), "UTC", at(f"2026-11-30 {text}"))
        assert (state.is_open, state.id) == expected

    def test_any_open_one_is_enough_and_the_answer_changes_after_the_last(self) -> None:
        state = window_state((self.DAY, w("17:00", "20:00")), "UTC", at("2026-11-30 17:30"))
        assert (state.is_open, state.id, state.until) == (True, 0, at("2026-11-30 20:00"))

    def test_only_exceptions_leave_the_rest_open(self) -> None:
        assert is_open("2026-11-30 11:00", self.LUNCH)
        assert not is_open("2026-11-30 12:00", self.LUNCH)


class TestDaylightSaving:
    @pytest.mark.parametrize(
        ("window", "minutes"),
        [
            (("01:00", "04:00"), {NORMAL: 180, SPRING: 120, FALL: 240}),
            (("02:00", "03:00"), {NORMAL: 60, SPRING: 0, FALL: 60}),
            (("01:00", "02:00"), {NORMAL: 60, SPRING: 60, FALL: 120}),
        ],
    )
    def test_minutes_open_in_new_york(self, window: tuple[str, str], minutes: dict[date, int]) -> None:
        for day, expected in minutes.items():
            only = (w(*window, date_from=day, date_to=day),)
            midnight = datetime.combine(day, time(), UTC)
            told = [window_state(only, NEW_YORK, midnight + MINUTE * number) for number in range(30 * 60)]
            assert sum(one.is_open for one in told) == expected

    @pytest.mark.parametrize("day", [NORMAL, SPRING, FALL])
    def test_the_next_change_is_the_next_minute_that_differs(self, day: date) -> None:
        windows = (w("02:30", "05:00"), w("01:30", "02:15"), w("23:00", "01:10"))
        midnight = datetime.combine(day, time(), UTC)
        told = [window_state(windows, NEW_YORK, midnight + MINUTE * number) for number in range(24 * 60)]
        for now, following in pairwise(told):
            changed = now.is_open is not following.is_open
            assert (now.until == following.until) is not changed

    def test_a_window_that_the_jump_swallows_is_passed_over(self) -> None:
        never_then = (w("02:00", "03:00", days=(7,)),)
        state = window_state(never_then, NEW_YORK, at("2026-03-08 00:00", NEW_YORK))
        assert (state.is_open, state.until) == (False, at("2026-03-15 02:00", NEW_YORK))

    def test_a_window_may_open_by_the_jump(self) -> None:
        state = window_state((w("02:30", "05:00"),), NEW_YORK, at("2026-03-08 01:00", NEW_YORK))
        assert state.until == at("2026-03-08 03:00", NEW_YORK)


class TestFarAway:
    NOW = at("2026-11-30 12:00")

    def test_dates_years_ahead_are_found(self) -> None:
        year = w("10:00", "11:00", date_from=date(2040, 1, 1), date_to=date(2040, 12, 31), days=(3,))
        assert window_state((year,), "UTC", self.NOW).until == at("2040-01-04 10:00")
        assert is_ever_open((year,), "UTC", self.NOW)

    def test_the_end_of_time_is_no_error(self) -> None:
        ever = w("00:00", "00:00", date_to=date.max)
        state = window_state((ever,), NEW_YORK, self.NOW)
        assert (state.is_open, state.until) == (True, None)

    def test_what_is_over_never_opens_again(self) -> None:
        past = (w("10:00", "11:00", date_to=date(2020, 1, 1)),)
        assert window_state(past, "UTC", self.NOW).until is None
        assert not is_ever_open(past, "UTC", self.NOW)

    def test_next_opening(self) -> None:
        assert opens_at((w("10:00", "13:00"),), "UTC", self.NOW) == at("2026-12-01 10:00")
        assert opens_at((w("13:00", "14:00"),), "UTC", self.NOW) == at("2026-11-30 13:00")
        assert opens_at((), "UTC", self.NOW) is None


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "../etc", "America", "UTC/", "tzdata.zi", "/etc/localtime", "a\0b", "a" * 300]
)
def test_no_such_zone(name: str) -> None:
    with pytest.raises(UnknownZoneError):
        zone(name)


@pytest.mark.parametrize("name", ["UTC", "Etc/GMT+12", "America/Argentina/Buenos_Aires", "Asia/Calcutta"])
def test_zones(name: str) -> None:
    assert zone(name).key == name
