"""Who held how much for how long: full allocation is what counts (R8), the rest is told as waste."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.csv_text import to_csv
from kernel.resources import Resources
from rayjobs.usage import GroupBy, Holding, Interval, Sums, Usage

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ONE = Resources(cpu=2, memory_gib=4, gpu={"H100": 1})


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def between(start: float, end: float) -> Interval:
    return Interval(start=at(start), end=at(end))


def held(start: float, began: float | None, end: float | None, **fields: Any) -> Holding:
    times = {"began_at": None if began is None else at(began), "ended_at": None if end is None else at(end)}
    return Holding(**{"run": "run_1", "key": "g", "amount": ONE, "held_from": at(start), **times, **fields})


def usages(*holdings: Holding, interval: Interval | None = None, by: GroupBy = GroupBy.JOB) -> list[Usage]:
    sums = Sums(interval or between(0, 3600), by, now=at(1000))
    for holding in holdings:
        sums.add(holding)
    return sums.usages


def seconds(amounts: Resources) -> float:
    """Of two cores: what was held is told by its cpu."""
    return amounts.cpu / ONE.cpu


class TestOneAttempt:
    def test_it_counts_from_full_allocation_on(self) -> None:
        (usage,) = usages(held(0, 40, 100))
        assert usage.used == Resources(cpu=120, memory_gib=240, gpu={"H100": 60})
        assert seconds(usage.gang_hold) == 40
        assert (seconds(usage.cold_start), seconds(usage.failed_attempts)) == (0, 0)

    def test_what_came_before_is_cold_start_first(self) -> None:
        (usage,) = usages(held(0, 40, 100, cold_start_s=30))
        assert (seconds(usage.cold_start), seconds(usage.gang_hold), seconds(usage.used)) == (30, 10, 60)

    def test_one_that_never_had_everything(self) -> None:
        (usage,) = usages(held(0, None, 50, cold_start_s=600))
        assert (seconds(usage.cold_start), seconds(usage.gang_hold), seconds(usage.used)) == (50, 0, 0)
        (usage,) = usages(held(0, None, 50))
        assert (seconds(usage.gang_hold), seconds(usage.used)) == (50, 0)

    def test_one_that_another_followed(self) -> None:
        (usage,) = usages(held(0, 10, 30, in_vain=True))
        assert (seconds(usage.used), seconds(usage.failed_attempts), seconds(usage.gang_hold)) == (20, 20, 10)

    def test_what_is_still_held_counts_until_now(self) -> None:
        (usage,) = usages(held(0, 100, None))
        assert seconds(usage.used) == 900
        (usage,) = usages(held(0, None, None))
        assert (seconds(usage.gang_hold), seconds(usage.used)) == (1000, 0)


class TestInterval:
    @pytest.mark.parametrize(
        ("interval", "hold", "used"),
        [((0, 100), 40, 60), ((20, 60), 20, 20), ((40, 100), 0, 60), ((-50, 10), 10, 0), ((90, 500), 0, 10)],
    )
    def test_only_what_lies_in_it(self, interval: tuple[float, float], hold: float, used: float) -> None:
        (usage,) = usages(held(0, 40, 100), interval=between(*interval))
        assert (seconds(usage.gang_hold), seconds(usage.used), len(usage.runs)) == (hold, used, 1)

    @pytest.mark.parametrize("interval", [(-50, 0), (100, 200), (200, 300)])
    def test_nothing_of_what_does_not(self, interval: tuple[float, float]) -> None:
        assert usages(held(0, 40, 100), interval=between(*interval)) == []

    def test_a_run_too_short_to_cost_anything_was_there(self) -> None:
        (usage,) = usages(held(5, 5, 5))
        assert (len(usage.runs), usage.used.cpu) == (1, 0)

    @given(st.lists(st.floats(0, 900), min_size=3, max_size=3).map(sorted), st.floats(1, 899))
    def test_two_halves_are_the_whole(self, times: list[float], cut: float) -> None:
        holding = held(*times, cold_start_s=7)
        whole = usages(holding, interval=between(0, 901))
        halves = [*usages(holding, interval=between(0, cut)), *usages(holding, interval=between(cut, 901))]
        for name in ("used", "gang_hold", "cold_start"):
            parts = sum(getattr(half, name).cpu for half in halves)
            assert parts == pytest.approx(sum(getattr(usage, name).cpu for usage in whole), abs=1e-3)


class TestKeys:
    def test_sums_by_key_and_counts_each_run_once(self) -> None:
        found = usages(
            held(0, 0, 10, key="b"),
            held(20, 20, 30, key="b"),
            held(0, 0, 5, key="a", run="run_2"),
            held(0, 0, 5, key=None, run="run_3"),
        )
        assert [(usage.key, seconds(usage.used), len(usage.runs)) for usage in found] == [
            (None, 5, 1),
            ("a", 5, 1),
            ("b", 20, 1),
        ]

    def test_by_day_of_utc(self) -> None:
        hour = 3600
        holding = held(-hour, 0, 36 * hour, key=None)
        interval = between(-48 * hour, 48 * hour)
        sums = Sums(interval, GroupBy.DAY, now=at(0))
        sums.add(holding)
        told = [(usage.key, seconds(usage.used) / hour, seconds(usage.gang_hold) / hour) for usage in sums.usages]
        assert told == [("2026-11-30", 12, 1), ("2026-12-01", 24, 0)]

    def test_a_moment_has_a_day(self) -> None:
        midnight = 12 * 3600
        (usage,) = usages(held(midnight, midnight, midnight), interval=between(0, 2 * midnight), by=GroupBy.DAY)
        assert usage.key == "2026-12-01"


class TestCsv:
    def test_a_column_for_each_value(self) -> None:
        text = to_csv([{"key": "a", "gpu": {"H100": 1.5}}, {"key": None, "gpu": {"A100": 2}}], ("key",))
        assert text == "key,gpu.H100,gpu.A100\r\na,1.5,\r\n,,2\r\n"

    def test_without_records_there_are_still_columns(self) -> None:
        assert to_csv([], ("key", "runs")) == "key,runs\r\n"

    @pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
    def test_no_cell_is_a_formula(self, name: str) -> None:
        cell = to_csv([{"key": name}], ("key",)).partition("\r\n")[2].strip('"')
        assert cell.startswith(f"'{name[0]}")

    def test_numbers_below_zero_stay_numbers(self) -> None:
        assert to_csv([{"key": -1.5}], ("key",)) == "key\r\n-1.5\r\n"
