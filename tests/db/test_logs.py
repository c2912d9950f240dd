"""Logs copied piece by piece into a real store, and read back by offset."""

from pathlib import Path

import pytest

from cluster_groups.model.cluster import Endpoint
from kernel.db import Database
from kernel.loop import Hints
from rayjobs import logs as logs_module
from rayjobs.log_pages import WhichLog, find_log, read_page
from rayjobs.logs import LogId, LogKeeper, Source, keep_ends
from rayjobs.model.run import AttemptState, RunState, submission_id
from rayjobs.run_store import get_run
from rayjobs.tables import AttemptRow
from runtime_envs.packages.local import LocalBlobStore
from tests.builders.job_world import make_world
from tests.builders.targets import NOW

HEADER = b"x -- Runtime env is setting up.\nx -- Running entrypoint for job run_1-a1: exec python3\n"


class Node:
    """A file that grows on a node; stands in for the agent that serves it by Range."""

    def __init__(self) -> None:
        self.content = b""

    async def read_log(
        self, endpoint: Endpoint, agent_address: str, path: str, *, offset: int, limit_bytes: int
    ) -> bytes:
        del endpoint, agent_address, path
        return self.content[offset : offset + limit_bytes]


class Desk:
    def __init__(self, database: Database, run_id: str, node: Node, keeper: LogKeeper) -> None:
        self.database, self.run_id, self.node, self.keeper = database, run_id, node, keeper
        self.attempt_id = submission_id(run_id, 1)
        self.log = LogId(attempt_id=self.attempt_id)
        endpoint = Endpoint(address="http://127.0.0.1:1")
        self.source = Source(log=self.log, endpoint=endpoint, agent_address="http://127.0.0.1:2")

    async def grow(self, data: bytes, *, is_over: bool = False) -> bool:
        self.node.content += data
        return (await self.keeper.copy(self.source, is_over=is_over)).complete

    async def text(self, offset: int = 0, limit_bytes: int = 2**20) -> tuple[str, int, bool]:
        async with self.database.read() as session:
            run = await get_run(session, self.run_id)
            found = await find_log(session, run, WhichLog())
        page = await read_page(self.keeper, run, found, offset=offset, limit_bytes=limit_bytes)
        return page.data, page.next_offset, page.complete


@pytest.fixture
async def blobs(tmp_path: Path) -> LocalBlobStore:
    store = LocalBlobStore(tmp_path / "blobs")
    await store.prepare()
    return store


@pytest.fixture
async def desk(database: Database, blobs: LocalBlobStore) -> Desk:
    world = await make_world(database)
    run_id = await world.run((await world.create(world.shared())).job, RunState.RUNNING)
    async with database.write() as session:
        session.add(
            AttemptRow(
                id=submission_id(run_id, 1), run_id=run_id, epoch=1, cluster_id="clu_1", cluster="c1", demand={},
                state=AttemptState.RUNNING, state_since=NOW, created_at=NOW,
            )
        )  # fmt: skip
    node = Node()
    return Desk(database, run_id, node, LogKeeper(database, blobs, node, Hints(), max_bytes=2**20))  # type: ignore[arg-type]


class TestCopying:
    async def test_in_pieces_as_it_grows(self, desk: Desk) -> None:
        await desk.grow(HEADER + b"one\n")
        assert await desk.text() == ("one\n", 4, False)
        await desk.grow(b"two\n")
        assert await desk.grow(b"three", is_over=True)
        assert await desk.text() == ("one\ntwo\nthree", 13, True)

    async def test_copying_again_adds_nothing(self, desk: Desk) -> None:
        await desk.grow(HEADER + b"one\n", is_over=True)
        await desk.grow(b"", is_over=True)
        assert (await desk.text())[0] == "one\n"

    async def test_a_new_keeper_goes_on_where_the_last_one_was(self, desk: Desk, blobs: LocalBlobStore) -> None:
        await desk.grow(HEADER + b"one\n")
        desk.keeper = LogKeeper(desk.database, blobs, desk.node, Hints(), max_bytes=2**20)  # type: ignore[arg-type]
        await desk.grow(b"two\n", is_over=True)
        assert (await desk.text())[0] == "one\ntwo\n"

    async def test_what_is_over_leaves_no_lock(self, desk: Desk) -> None:
        for _ in range(2):
            await desk.grow(HEADER, is_over=True)
        assert not desk.keeper._locks

    async def test_small_pieces_are_joined(self, desk: Desk, blobs: LocalBlobStore) -> None:
        await desk.grow(HEADER)
        for number in range(20):
            await desk.grow(b"%d\n" % number)
        assert [blob.size_bytes async for blob in blobs.find("logs/")] == [50]

    async def test_no_driver_no_log_but_rays_message(self, desk: Desk) -> None:
        await desk.keeper.close(desk.log, text=b"pip failed\n")
        assert await desk.text() == ("pip failed\n", 11, True)
        await desk.keeper.close(desk.log, text=b"again\n")
        assert (await desk.text())[0] == "pip failed\n"

    async def test_of_a_long_log_the_ends_are_kept(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logs_module, "PIECE_BYTES", 1)
        await desk.grow(HEADER)
        for number in range(64):
            await desk.grow(bytes([65 + number % 26]) * 2**15)
        await desk.grow(b"", is_over=True)
        first, after, _ = await desk.text()
        assert len(first) == after == 2**19
        second, end, complete = await desk.text(offset=after)
        assert (len(second), end, complete) == (2**19, 64 * 2**15, True)


class TestReading:
    async def test_pages_never_cut_a_character(self, desk: Desk) -> None:
        await desk.grow(HEADER + "日志\n".encode(), is_over=True)
        seen, offset, complete = "", 0, False
        while not complete:
            data, offset, complete = await desk.text(offset, limit_bytes=1)
            seen += data
        assert seen == "日志\n"

    async def test_bytes_that_are_no_text_are_shown_as_such(self, desk: Desk) -> None:
        await desk.grow(HEADER + b"a\xff\xfeb\n", is_over=True)
        assert (await desk.text())[0] == "a\ufffd\ufffdb\n"


def test_only_whole_pieces_between_the_halves_go() -> None:
    pieces = [(0, 4), (4, 4), (8, 4), (12, 4)]
    assert keep_ends(pieces, 16, 8) == ([(0, 4), (12, 4)], [(4, 4), (8, 4)])
    assert keep_ends(pieces, 16, 100) == (pieces, [])
