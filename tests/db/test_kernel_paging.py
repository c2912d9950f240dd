"""Pages by key: complete, in order, and steady while rows come and go."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, select

from kernel.db import Database
from kernel.errors import InvalidInput
from kernel.paging import Page, PageRequest, paginate
from rayjobs.tables import JobRow

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SORTABLE = {"created_at": JobRow.created_at, "name": JobRow.name, "revision": JobRow.revision}


async def fill(database: Database, count: int) -> None:
    """Two at a time have the same instant and revision, so that the key has to decide."""
    async with database.write() as session:
        session.add_all(
            JobRow(
                id=f"job_{number:02}",
                name=f"{(number * 7) % count:02}",
                origin="api",
                run_mode="cluster",
                revision=number // 2,
                created_at=NOON + timedelta(seconds=number // 2),
                created_by="ann",
            )
            for number in range(count)
        )


async def page_of(database: Database, **request: object) -> Page[JobRow]:
    async with database.read() as session:
        return await paginate(
            session,
            select(JobRow),
            PageRequest(**request),
            sortable=SORTABLE,
            key=JobRow.id,  # type: ignore[arg-type]
        )


async def walk(database: Database, sort: str, limit: int) -> list[str]:
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await page_of(database, sort=sort, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        ids += [row.id for row in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


@pytest.mark.parametrize("limit", [1, 3, 10, 11])
@pytest.mark.parametrize("sort", ["created_at", "-created_at", "name", "-name", "revision", "-revision"])
async def test_a_walk_meets_every_row_once_in_order(database: Database, sort: str, limit: int) -> None:
    await fill(database, 10)
    async with database.read() as session:
        rows = list(await session.scalars(select(JobRow)))
    rows.sort(key=lambda row: (getattr(row, sort.removeprefix("-")), row.id), reverse=sort.startswith("-"))
    assert await walk(database, sort, limit) == [row.id for row in rows]


async def test_rows_that_come_and_go_shift_nothing(database: Database) -> None:
    await fill(database, 6)
    first = await page_of(database, sort="created_at", limit=2)
    async with database.write() as session:
        await session.execute(delete(JobRow).where(JobRow.id.in_(["job_00", "job_01"])))
    second = await page_of(database, sort="created_at", limit=2, cursor=first.next_cursor)
    assert [row.id for row in second.items] == ["job_02", "job_03"]


async def test_no_cursor_after_the_last(database: Database) -> None:
    await fill(database, 4)
    assert (await page_of(database, limit=4)).next_cursor is None
    assert (await page_of(database, limit=3)).next_cursor is not None


def forged(*content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


AT = NOON.isoformat()


@pytest.mark.parametrize(
    ("sort", "cursor"),
    [
        ("created_at", "!"),
        ("created_at", "AAAA"),
        ("created_at", "é"),
        ("created_at", forged("created_at")),
        ("created_at", forged("name", AT, "job_00")),
        ("created_at", forged("created_at", "yesterday", "job_00")),
        ("created_at", forged("created_at", "2026-01-01T00:00:00", "job_00")),
        ("created_at", forged("created_at", AT, 7)),
        ("created_at", forged("created_at", AT, {"a": 1})),
        ("created_at", forged("created_at", AT, None)),
        ("created_at", forged({"a": 1})),
        ("name", forged("name", 7, "job_00")),
        ("name", forged("name", ["x"], "job_00")),
        ("name", forged("name", "a\0", "job_00")),
        ("revision", forged("revision", "x", "job_00")),
        ("revision", forged("revision", 2**70, "job_00")),
        ("revision", forged("revision", True, "job_00")),
    ],
)
async def test_cursors_nobody_was_given(database: Database, sort: str, cursor: str) -> None:
    await fill(database, 2)
    with pytest.raises(InvalidInput, match="INVALID_CURSOR"):
        await page_of(database, sort=sort, cursor=cursor)


async def test_fields_nobody_sorts_by(database: Database) -> None:
    with pytest.raises(InvalidInput, match="INVALID_SORT") as refused:
        await page_of(database, sort="origin")
    assert refused.value.params["allowed"] == ["created_at", "name", "revision"]
