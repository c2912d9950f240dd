"""Usage rows on both databases; the sums themselves are tested in tests/unit."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kernel.db import Database
from rayjobs.tables import UsageRow
from rayjobs.usage import GroupBy, Interval, Usage, usage_in
from tests.builders.targets import NOW

HOUR = timedelta(hours=1)
DAY = Interval(start=NOW - 24 * HOUR, end=NOW)


async def store(database: Database, run: str, began: datetime, ended: datetime | None, **fields: Any) -> None:
    defaults = {
        "attempt_id": f"{run}-a1",
        "job_name": "train",
        "created_by": "ann",
        "resource_group": "default",
        "cluster": "c1",
        "amount": {"cpu": 2, "memory_gib": 4, "gpu": {"H100": 1}},
        "held_from": began,
    }
    async with database.write() as session:
        session.add(UsageRow(run_id=run, began_at=began, ended_at=ended, **{**defaults, **fields}))


async def ask(database: Database, group_by: GroupBy, interval: Interval = DAY) -> dict[str | None, Usage]:
    async with database.read() as session:
        return {usage.key: usage for usage in await usage_in(session, interval, group_by, NOW)}


@pytest.fixture
async def filled(database: Database) -> Database:
    await store(database, "run_1", NOW - 3 * HOUR, NOW - 2 * HOUR)
    await store(database, "run_2", NOW - 2 * HOUR, None, job_name="=evil()", created_by="bob", resource_group=None)
    await store(database, "run_3", NOW - 50 * HOUR, NOW - 49 * HOUR)
    await store(database, "run_4", NOW + HOUR, NOW + 2 * HOUR)
    return database


@pytest.mark.parametrize(
    ("group_by", "cpu_hours"),
    [
        (GroupBy.RESOURCE_GROUP, {"default": 2, None: 4}),
        (GroupBy.JOB, {"train": 2, "=evil()": 4}),
        (GroupBy.USER, {"ann": 2, "bob": 4}),
        (GroupBy.DAY, {NOW.date().isoformat(): 6}),
    ],
)
async def test_by_what(filled: Database, group_by: GroupBy, cpu_hours: dict[str | None, float]) -> None:
    found = await ask(filled, group_by)
    assert {key: usage.used.cpu / 3600 for key, usage in found.items()} == cpu_hours


async def test_the_interval_cuts(filled: Database) -> None:
    found = await ask(filled, GroupBy.USER, Interval(start=NOW - 60 * HOUR, end=NOW - HOUR))
    assert (found["ann"].used.gpu, found["ann"].runs) == ({"H100": 7200}, {"run_1", "run_3"})
    assert found["bob"].used.cpu == 2 * 3600


async def test_waste(database: Database) -> None:
    began = NOW - HOUR
    await store(database, "run_1", began, NOW, held_from=began - HOUR, cold_start_s=600, in_vain=True)
    (usage,) = (await ask(database, GroupBy.JOB)).values()
    assert (usage.cold_start.cpu, usage.gang_hold.cpu, usage.failed_attempts.cpu) == (1200, 6000, 7200)


async def test_of_nobody(database: Database) -> None:
    assert await ask(database, GroupBy.DAY) == {}
