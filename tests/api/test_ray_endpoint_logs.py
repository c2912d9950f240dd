"""Logs at the Ray Jobs endpoint: the whole text, the tail, and how a tail ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from uvicorn import Server

from rayjobs.model.run import End, EndClass, EndCode, RunState
from tests.api.ray_world import RayWorld, ray_world

DONE = End(end_class=EndClass.COMPLETED, code=EndCode.ALL_TASKS_DONE, exit_code=0)
WITHIN_S = 5


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[RayWorld]:
    async with ray_world(database_url, tmp_path) as world:
        yield world


@pytest.fixture
async def submitted(world: RayWorld) -> None:
    async with world.client() as client:
        answer = await client.post("/api/jobs/", json={"entrypoint": "x", "submission_id": "s1"})
        assert answer.status_code == 200, answer.text


@pytest.fixture
async def served(world: RayWorld, submitted: None) -> AsyncIterator[tuple[str, Server]]:
    async with world.served() as (address, server):
        yield address, server


@pytest.fixture
async def tail(world: RayWorld, served: tuple[str, Server]) -> AsyncIterator[ClientWebSocketResponse]:
    async with session_of(world) as session, session.ws_connect(f"{served[0]}/api/jobs/s1/logs/tail") as socket:
        yield socket


def session_of(world: RayWorld, **headers: str) -> ClientSession:
    return ClientSession(headers={"Authorization": f"Bearer {world.secrets['ann']}", **headers})


async def logs(world: RayWorld) -> str:
    async with world.client() as client:
        answer = await client.get("/api/jobs/s1/logs")
        assert list(answer.json()) == ["logs"]
        return str(answer.json()["logs"])


async def read_until(socket: ClientWebSocketResponse, text: str) -> str:
    got = ""
    async with asyncio.timeout(WITHIN_S):
        while not got.endswith(text):
            message = await socket.receive()
            assert message.type is WSMsgType.TEXT, message
            got += message.data
    return got


async def read_to_end(socket: ClientWebSocketResponse) -> tuple[str, int | None]:
    """The rest of the text and the close code, as Ray's client sees them."""
    got = ""
    async with asyncio.timeout(WITHIN_S):
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            got += message.data
    return got, socket.close_code


@pytest.mark.usefixtures("submitted")
class TestWhole:
    async def test_empty_before_there_is_a_driver(self, world: RayWorld) -> None:
        assert await logs(world) == ""

    async def test_what_there_is_so_far(self, world: RayWorld) -> None:
        attempt = await world.start("s1")
        await world.write_log(attempt, b'"\xe8\xa7\x86\\\xff\n')
        assert await logs(world) in {"", '"视\\�\n'}
        await world.write_log(attempt, b"x" * 70_000)
        assert await logs(world) == '"视\\�\n' + "x" * 70_000

    async def test_of_a_run_that_is_over_it_waits_for_the_rest(self, world: RayWorld) -> None:
        attempt = await world.start("s1")
        await world.end("s1", DONE)
        reading = asyncio.create_task(logs(world))
        await asyncio.sleep(0.1)
        await world.write_log(attempt, b"the end\n", is_over=True)
        async with asyncio.timeout(WITHIN_S):
            assert await reading == "the end\n"

    async def test_all_attempts_one_after_the_other(self, world: RayWorld) -> None:
        await world.write_log(await world.start("s1"), b"first\n", is_over=True)
        await world.write_log(await world.start("s1", epoch=2), b"second\n", is_over=True)
        await world.end("s1", DONE)
        assert await logs(world) == "first\nsecond\n"

    async def test_more_than_one_page(self, world: RayWorld) -> None:
        text = "".join(f"{number} 视频\n" for number in range(60_000))
        await world.write_log(await world.start("s1"), text.encode(), is_over=True)
        await world.end("s1", DONE)
        assert await logs(world) == text


class TestTail:
    async def test_it_waits_follows_and_closes_at_the_end(self, world: RayWorld, tail: ClientWebSocketResponse) -> None:
        attempt = await world.start("s1")
        await world.write_log(attempt, b"-- Running entrypoint for job x\none\n")
        assert await read_until(tail, "\n") == "one\n"
        await world.write_log(attempt, "二\n".encode()[:2])
        await world.write_log(attempt, "二\n".encode()[2:])
        assert await read_until(tail, "\n") == "二\n"
        await world.end("s1", DONE)
        await world.write_log(attempt, b"last", is_over=True)
        assert await read_to_end(tail) == ("last", 1000)

    async def test_it_is_open_until_the_run_is_over(self, world: RayWorld, tail: ClientWebSocketResponse) -> None:
        await world.write_log(await world.start("s1"), b"all\n", is_over=True)
        await read_until(tail, "all\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tail.receive(), 1)
        await world.end("s1", DONE)
        assert (await read_to_end(tail))[1] == 1000

    async def test_a_run_that_never_started(self, world: RayWorld, tail: ClientWebSocketResponse) -> None:
        await world.move("s1", RunState.WAITING)
        async with world.client() as client:
            await client.post("/api/jobs/s1/stop")
        assert await read_to_end(tail) == ("", 1000)

    async def test_no_frame_is_too_large_for_the_client(self, world: RayWorld, tail: ClientWebSocketResponse) -> None:
        data = b"\xff" * 900_000
        await world.write_log(await world.start("s1"), data, is_over=True)
        await world.end("s1", DONE)
        sizes = []
        async with asyncio.timeout(WITHIN_S):
            while (message := await tail.receive()).type is WSMsgType.TEXT:
                sizes.append(len(message.data))
        assert sum(sizes) == 900_000
        assert max(sizes) * 3 < 4 * 2**20

    async def test_what_does_not_exist(
        self, world: RayWorld, served: tuple[str, Server], caplog: pytest.LogCaptureFixture
    ) -> None:
        async with session_of(world) as session:
            for client_id in ("s2", "a%00"):
                with pytest.raises(WSServerHandshakeError) as refusal:
                    await session.ws_connect(f"{served[0]}/api/jobs/{client_id}/logs/tail")
                assert refusal.value.status == 404
        assert not caplog.text

    async def test_nobody_without_a_token(self, world: RayWorld, served: tuple[str, Server]) -> None:
        async with session_of(world, Authorization="Bearer no") as session:
            with pytest.raises(WSServerHandshakeError) as refusal:
                await session.ws_connect(f"{served[0]}/api/jobs/s1/logs/tail")
        assert refusal.value.status == 401

    async def test_when_the_service_stops_it_is_cut(
        self, world: RayWorld, served: tuple[str, Server], tail: ClientWebSocketResponse
    ) -> None:
        await world.write_log(await world.start("s1"), b"-- Running entrypoint for job x\none\n")
        await read_until(tail, "one\n")
        served[1].should_exit = True
        assert await read_to_end(tail) == ("", 1006)

    async def test_a_client_that_leaves_ends_the_reading(
        self, served: tuple[str, Server], tail: ClientWebSocketResponse
    ) -> None:
        await tail.close()
        async with asyncio.timeout(WITHIN_S):
            while served[1].server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.02)
