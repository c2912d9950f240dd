"""What every store of blobs must do, whatever it stands on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernel.errors import NotFound, TooLarge, Unavailable
from runtime_envs.packages.base import Blob, BlobStore, one_chunk, read_all
from runtime_envs.packages.local import LocalBlobStore
from runtime_envs.packages.spool import spooled
from tests.builders.object_stores import Place, bucket_store
from tests.builders.small_disk import largest_file_bytes

MIB = 1024 * 1024
KEY = "packages/abc.zip"


@pytest.fixture(params=["local", "s3", "cos"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    store: BlobStore = LocalBlobStore(tmp_path / "blobs")
    if request.param != "local":
        place: Place = request.getfixturevalue(f"{request.param}_place")
        store = bucket_store(place.open(), tmp_path)
    await store.prepare()
    return store


async def chunks_of(data: bytes, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def find(store: BlobStore, prefix: str) -> dict[str, Blob]:
    return {blob.key: blob async for blob in store.find(prefix)}


class TestRoundTrip:
    @pytest.mark.parametrize("size", [0, 1, 64 * 1024, MIB, 5 * MIB + 3])
    async def test_put_and_read(self, store: BlobStore, size: int) -> None:
        data = os.urandom(size)
        await store.put(KEY, chunks_of(data))
        assert await read_all(store, KEY) == data
        assert await store.size_bytes(KEY) == size

    @pytest.mark.parametrize(
        ("start", "end"), [(0, None), (3, None), (0, 4), (3, 7), (3, 3), (0, 99), (50, None), (9, 2)]
    )
    async def test_range(self, store: BlobStore, start: int, end: int | None) -> None:
        await store.put(KEY, one_chunk(b"0123456789"))
        assert b"".join([chunk async for chunk in store.read(KEY, start, end)]) == b"0123456789"[start:end]

    async def test_range_across_reads(self, store: BlobStore) -> None:
        data = os.urandom(4 * MIB)
        await store.put(KEY, chunks_of(data))
        got = b"".join([chunk async for chunk in store.read(KEY, MIB - 5, 3 * MIB + 5)])
        assert got == data[MIB - 5 : 3 * MIB + 5]

    async def test_put_replaces(self, store: BlobStore) -> None:
        await store.put(KEY, one_chunk(b"a longer old one"))
        await store.put(KEY, one_chunk(b"new"))
        assert await read_all(store, KEY) == b"new"

    async def test_a_reader_finishes_what_it_began(self, store: BlobStore) -> None:
        data = os.urandom(3 * MIB)
        await store.put(KEY, chunks_of(data))
        reader = store.read(KEY)
        got = await anext(reader)
        await store.put(KEY, one_chunk(b"new"))
        await store.delete(KEY)
        assert got + b"".join([chunk async for chunk in reader]) == data

    async def test_put_file_takes_the_file(self, store: BlobStore) -> None:
        async with spooled(store.spool_dir, one_chunk(b"spooled")) as file:
            await store.put_file(KEY, file.path)
            assert not file.path.exists()
        assert await read_all(store, KEY) == b"spooled"


class TestMissing:
    async def test_read(self, store: BlobStore) -> None:
        with pytest.raises(NotFound, match="BLOB_NOT_FOUND"):
            await read_all(store, KEY)

    async def test_a_folder_is_no_blob(self, store: BlobStore) -> None:
        await store.put(KEY, one_chunk(b"x"))
        assert await store.size_bytes("packages") is None
        with pytest.raises(NotFound):
            await read_all(store, "packages")
        with pytest.raises(NotFound):
            await read_all(store, f"{KEY}/below")

    async def test_size(self, store: BlobStore) -> None:
        assert await store.size_bytes(KEY) is None

    async def test_delete_twice(self, store: BlobStore) -> None:
        await store.put(KEY, one_chunk(b"x"))
        await store.delete(KEY)
        await store.delete(KEY)
        assert await store.size_bytes(KEY) is None


class TestKeys:
    @pytest.mark.parametrize(
        "key", ["", "/etc/passwd", "a/../b", "..", "a//b", "a/", "A", "a b", "a\n", ".spool/x", "a/.b", "é", "a" * 256]
    )
    async def test_refused(self, store: BlobStore, key: str) -> None:
        with pytest.raises(ValueError, match="not a blob key"):
            await store.put(key, one_chunk(b"x"))

    async def test_find(self, store: BlobStore) -> None:
        for key in ("runs/a/1", "runs/a/2", "runs/ab/1", "packages/x.zip"):
            await store.put(key, one_chunk(key.encode()))
        assert set(await find(store, "")) == {"runs/a/1", "runs/a/2", "runs/ab/1", "packages/x.zip"}
        assert set(await find(store, "runs/a/")) == {"runs/a/1", "runs/a/2"}
        assert set(await find(store, "runs/a")) == {"runs/a/1", "runs/a/2", "runs/ab/1"}
        assert await find(store, "nothing/here/") == {}

    async def test_find_tells_size_and_time(self, store: BlobStore) -> None:
        await store.put(KEY, one_chunk(b"12345"))
        blob = (await find(store, "packages/"))[KEY]
        assert blob.size_bytes == 5
        assert abs(blob.modified_at - datetime.now(UTC)) < timedelta(minutes=1)


class TestAllOrNothing:
    async def test_unseen_before_it_is_complete(self, store: BlobStore) -> None:
        seen = []

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield bytes(MIB)
                seen.append((await store.size_bytes(KEY), await find(store, "")))

        await store.put(KEY, chunks())
        assert seen == [(None, {})] * 3
        assert await store.size_bytes(KEY) == 3 * MIB

    @pytest.mark.parametrize("before", [None, b"old"])
    async def test_a_broken_stream_changes_nothing(self, store: BlobStore, before: bytes | None) -> None:
        if before is not None:
            await store.put(KEY, one_chunk(before))

        async def chunks() -> AsyncIterator[bytes]:
            yield bytes(2 * MIB)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await store.put(KEY, chunks())
        assert await store.size_bytes(KEY) == (before and len(before))
        assert list(store.spool_dir.iterdir()) == []

    async def test_cancelled(self, store: BlobStore) -> None:
        started = asyncio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            yield bytes(2 * MIB)
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(store.put(KEY, chunks()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await find(store, "") == {}
        assert list(store.spool_dir.iterdir()) == []

    async def test_many_writers_of_one_key(self, store: BlobStore) -> None:
        versions = [bytes([n]) * (MIB + n) for n in range(8)]
        await asyncio.gather(*(store.put(KEY, chunks_of(data)) for data in versions))
        assert await read_all(store, KEY) in versions

    async def test_writers_and_deleters_in_one_folder(self, store: BlobStore) -> None:
        async def come_and_go(name: str) -> None:
            for _ in range(50):
                await store.put(f"a/b/{name}", one_chunk(b"x"))
                await store.delete(f"a/b/{name}")

        await asyncio.gather(*(come_and_go(str(n)) for n in range(4)))
        assert await find(store, "") == {}


class TestDiskFull:
    @pytest.mark.parametrize("room", [0, MIB + 100])
    async def test_put(self, store: BlobStore, room: int) -> None:
        with largest_file_bytes(room), pytest.raises(Unavailable, match="DISK_FULL"):
            await store.put(KEY, chunks_of(bytes(3 * MIB)))
        assert await find(store, "") == {}
        assert list(store.spool_dir.iterdir()) == []


class TestSpool:
    async def test_hash_and_size(self, store: BlobStore) -> None:
        async with spooled(store.spool_dir, chunks_of(b"abc", size=1), limit_bytes=3) as file:
            assert file.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
            assert (file.size_bytes, file.path.read_bytes()) == (3, b"abc")
        assert not file.path.exists()

    async def test_stops_at_the_first_byte_too_many(self, store: BlobStore) -> None:
        taken = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield bytes(MIB)

        with pytest.raises(TooLarge) as caught:
            async with spooled(store.spool_dir, endless(), limit_bytes=3 * MIB):
                pytest.fail("not reached")
        assert (caught.value.code, caught.value.params) == ("PACKAGE_TOO_LARGE", {"limit_bytes": 3 * MIB})
        assert taken == 4
        assert list(store.spool_dir.iterdir()) == []


CRASH = """
import asyncio, os, sys
from pathlib import Path
from runtime_envs.packages.local import LocalBlobStore

async def chunks():
    yield bytes(2 * 1024 * 1024)
    print("writing", flush=True)
    await asyncio.Event().wait()

async def main():
    store = LocalBlobStore(Path(sys.argv[1]))
    await store.prepare()
    await store.put("packages/half.zip", chunks())

asyncio.run(main())
"""


class TestLocalCrash:
    async def test_what_a_killed_process_left_goes_at_the_next_start(self, tmp_path: Path) -> None:
        store = LocalBlobStore(tmp_path)
        await store.prepare()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CRASH, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"writing\n"
        (half,) = store.spool_dir.iterdir()
        await store.prepare()
        assert half.exists(), "a living process is still at it"
        process.kill()
        await process.communicate()
        await store.prepare()
        assert list(store.spool_dir.iterdir()) == []
        assert await find(store, "") == {}
