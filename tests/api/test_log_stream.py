"""A run's log as it is told while it grows, over a real connection: attempt after attempt, and after a reconnect."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from rayjobs.model.run import End, EndClass, EndCode
from tests.api.ray_world import RayWorld, ray_world

DONE = End(end_class=EndClass.COMPLETED, code=EndCode.ALL_TASKS_DONE, exit_code=0)
WITHIN_S = 10
Told = tuple[str, str, str]
"""Kind, id and text of an event."""


class Listener:
    def __init__(self, world: RayWorld, address: str, run_id: str) -> None:
        self.world = world
        self.run_id = run_id
        self._address = httpx.URL(address).join(f"/api/v1/runs/{run_id}/logs/stream")

    @asynccontextmanager
    async def stream(self, last_id: str = "", **query: int) -> AsyncIterator[AsyncIterator[Told]]:
        headers = {"Authorization": f"Bearer {self.world.secrets['ann']}", "Last-Event-ID": last_id}
        async with (
            httpx.AsyncClient(headers=headers, trust_env=False, timeout=WITHIN_S) as client,
            client.stream("GET", self._address, params=query) as answer,
        ):
            assert answer.status_code == 200, await answer.aread()
            yield _events(answer.aiter_lines())

    async def told(self, last_id: str = "", **query: int) -> list[Told]:
        """Until it ends."""
        async with asyncio.timeout(WITHIN_S), self.stream(last_id, **query) as events:
            return [event async for event in events]

    async def refused(self, last_id: str, **query: int) -> tuple[int, str]:
        async with self.world.client(address="") as client:
            answer = await client.get(self._address.path, params=query, headers={"Last-Event-ID": last_id})
        return answer.status_code, answer.json()["code"]


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[Told]:
    event: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "data" in event:
            yield event["event"], event["id"], json.loads(event["data"]).get("data", "")
            event = {}


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[RayWorld]:
    async with ray_world(database_url, tmp_path) as world:
        yield world


@pytest.fixture
async def listener(world: RayWorld) -> AsyncIterator[Listener]:
    async with world.client() as client:
        answer = await client.post("/api/jobs/", json={"entrypoint": "x", "submission_id": "s1"})
        assert answer.status_code == 200, answer.text
    async with world.served() as (address, _):
        yield Listener(world, address, (await world.run_of("s1")).id)


async def attempts(world: RayWorld, first: int, last: int) -> None:
    """Each with a whole log, and the next begun before anybody has looked."""
    for epoch in range(first, last + 1):
        await world.write_log(await world.start("s1", epoch), f"text {epoch}\n".encode(), is_over=True)


async def test_each_attempt_is_told_however_fast_they_come(world: RayWorld, listener: Listener) -> None:
    first = await world.start("s1")
    await world.write_log(first, b"text 1\n")
    async with asyncio.timeout(WITHIN_S), listener.stream() as events:
        assert await anext(events) == ("log", "7", "text 1\n")
        await attempts(world, 2, 3)
        await world.write_log(first, b"more\n", is_over=True)
        await world.end("s1", DONE)
        assert [event async for event in events] == [
            ("log", "12", "more\n"),
            ("log", "2-7", "text 2\n"),
            ("log", "3-7", "text 3\n"),
            ("end", "3-7", ""),
        ]


async def test_one_opened_before_the_first_attempt_tells_it(world: RayWorld, listener: Listener) -> None:
    async with asyncio.timeout(WITHIN_S), listener.stream() as events:
        await attempts(world, 1, 2)
        await world.end("s1", DONE)
        assert [event[:2] async for event in events] == [("log", "7"), ("log", "2-7"), ("end", "2-7")]


async def test_who_comes_again_goes_on_in_the_same_attempt(world: RayWorld, listener: Listener) -> None:
    await attempts(world, 1, 3)
    await world.end("s1", DONE)
    rest = [("log", "3-7", "text 3\n"), ("end", "3-7", "")]
    assert await listener.told() == rest
    assert await listener.told("5") == [("log", "7", "1\n"), ("log", "2-7", "text 2\n"), *rest]
    assert await listener.told("2-5") == [("log", "2-7", "2\n"), *rest]
    assert await listener.told("3-7") == rest[1:]


async def test_an_attempt_that_was_asked_for_is_told_alone(world: RayWorld, listener: Listener) -> None:
    await attempts(world, 1, 2)
    await world.end("s1", DONE)
    assert await listener.told(attempt=1) == [("log", "7", "text 1\n"), ("end", "7", "")]
    for last_id, query in (("5", {}), ("2-5", {}), ("", {"offset": 5})):
        assert await listener.told(last_id, attempt=2, **query) == [("log", "2-7", "2\n"), ("end", "2-7", "")]


async def test_ids_that_are_none_of_ours(world: RayWorld, listener: Listener) -> None:
    await attempts(world, 1, 1)
    for last_id in ("x", "1-", "-5", "0-5", "1-2-3", "9" * 16, "1-" + "9" * 16, "9" * 10 + "-1"):
        assert await listener.refused(last_id) == (422, "INVALID_CURSOR")
    assert await listener.refused("2-5", attempt=1) == (422, "INVALID_CURSOR")
    assert await listener.refused("2-5") == (404, "NOT_FOUND")


async def test_a_run_that_ended_without_an_attempt(world: RayWorld, listener: Listener) -> None:
    await world.end("s1", DONE)
    assert await listener.told() == await listener.told("0") == [("end", "0", "")]
