"""`/usage` and what resource groups hold, over HTTP."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from api.wiring import Services
from rayjobs.tables import UsageRow

END = datetime(2026, 11, 30, 12, tzinfo=UTC)
TIMES = {"from": "2026-11-30T00:00:00Z", "to": "2026-11-30T12:00:00Z"}


@pytest.fixture(autouse=True)
async def rows(services: Services) -> None:
    async with services.database.write() as session:
        for number, job in enumerate(("a", "b", "=cmd")):
            session.add(
                UsageRow(
                    attempt_id=f"run_{number}-a1",
                    run_id=f"run_{number}",
                    job_name=job,
                    created_by="ann",
                    resource_group="default",
                    cluster="c1",
                    amount={"cpu": number + 1, "memory_gib": 2, "gpu": {"H100": 1} if job == "b" else {}},
                    held_from=END - timedelta(seconds=100),
                    began_at=END - timedelta(seconds=60),
                    ended_at=END,
                    cold_start_s=30,
                )
            )


async def test_rows(client: httpx.AsyncClient) -> None:
    answer = await client.get("/usage", params={**TIMES, "group_by": "job"})
    first, _, last = answer.json()["items"]
    nothing = {"cpu_seconds": 0, "memory_gib_seconds": 0, "gpu_seconds": {}}
    assert (first["key"], first["cpu_seconds"], first["runs"]) == ("=cmd", 180, 1)
    assert last == {
        "key": "b",
        "cpu_seconds": 120,
        "memory_gib_seconds": 120,
        "gpu_seconds": {"H100": 60},
        "runs": 1,
        "waste": {
            "gang_hold": {"cpu_seconds": 20, "memory_gib_seconds": 20, "gpu_seconds": {"H100": 10}},
            "cold_start": {"cpu_seconds": 60, "memory_gib_seconds": 60, "gpu_seconds": {"H100": 30}},
            "failed_attempts": {**nothing, "gpu_seconds": {}},
        },
    }


async def test_it_is_a_list_like_the_others(client: httpx.AsyncClient) -> None:
    page = (await client.get("/usage", params={**TIMES, "group_by": "job", "sort": "-cpu_seconds", "limit": 2})).json()
    assert ([row["key"] for row in page["items"]], page["next_cursor"]) == (["=cmd", "b"], "2")
    rest = await client.get(
        "/usage", params={**TIMES, "group_by": "job", "sort": "-cpu_seconds", "limit": 2, "cursor": "2"}
    )
    assert [row["key"] for row in rest.json()["items"]] == ["a"]


async def test_as_csv_with_the_same_columns(client: httpx.AsyncClient) -> None:
    answer = await client.get("/usage", params={**TIMES, "group_by": "job"}, headers={"Accept": "text/csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    header, first, *_ = answer.text.split("\r\n")
    assert header.split(",")[:4] == ["key", "cpu_seconds", "memory_gib_seconds", "runs"]
    assert {"gpu_seconds.H100", "waste.gang_hold.cpu_seconds", "waste.cold_start.gpu_seconds.H100"} <= set(
        header.split(",")
    )
    assert first.startswith("'=cmd,180.0,120.0,1,")


async def test_without_an_interval_it_is_the_last_thirty_days(client: httpx.AsyncClient, services: Services) -> None:
    now = services.clock.now()
    async with services.database.write() as session:
        row = await session.get_one(UsageRow, "run_0-a1")
        row.held_from = row.began_at = now - timedelta(days=31)
        row.ended_at = None
    items = (await client.get("/usage", params={"group_by": "job"})).json()["items"]
    seen = next(row["cpu_seconds"] for row in items if row["key"] == "a")
    assert seen == pytest.approx(30 * 24 * 3600, abs=60)


@pytest.mark.parametrize(
    ("params", "pointer", "code"),
    [
        ({"from": TIMES["to"], "to": TIMES["from"]}, "/from", "INTERVAL_EMPTY"),
        ({"from": TIMES["to"], "to": TIMES["to"]}, "/from", "INTERVAL_EMPTY"),
        ({"from": "yesterday"}, "/from", "INVALID_TYPE"),
        ({"to": "2026-11-30T12:00:00"}, "/to", "INVALID_TYPE"),
        ({"group_by": "cluster"}, "/group_by", "INVALID_VALUE"),
        ({"sort": "waste"}, "/sort", "INVALID_SORT"),
        ({"since": "x"}, "/since", "UNKNOWN_PARAMETER"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, params: dict[str, str], pointer: str, code: str) -> None:
    answer = await client.get("/usage", params=params)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["errors"][0]["pointer"] == pointer
