"""What a store on a server does when the server, the way to it or the object is not as it should be."""

import os
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kernel.errors import MusterError, NotFound, Unavailable
from runtime_envs.packages.base import BlobStore, one_chunk, read_all
from runtime_envs.packages.bucket import BucketKeys
from runtime_envs.packages.bucket_store import PART_BYTES, BucketBlobStore
from tests.builders.broken_wire import Wire, wire_to
from tests.builders.object_stores import QUICK, Place, bucket_store
from tests.builders.seaweedfs import VERSIONED_BUCKET

MIB = 1024 * 1024
KEY = "packages/abc.zip"


@pytest.fixture
async def wire(place: Place) -> AsyncIterator[Wire]:
    async with wire_to(place.port) as wire:
        yield wire


@pytest.fixture
async def store(place: Place, wire: Wire, tmp_path: Path) -> BucketBlobStore:
    store = bucket_store(place.open(endpoint=wire.endpoint, patience=QUICK), tmp_path)
    await store.prepare()
    return store


async def trouble_of(store: BlobStore) -> set[tuple[str, str | None]]:
    """What each of the store's acts ends with."""
    found = set()
    for act in (
        store.prepare(),
        store.put(KEY, one_chunk(b"x")),
        read_all(store, KEY),
        store.size_bytes(KEY),
        store.delete(KEY),
    ):
        try:
            await act
        except MusterError as error:
            found.add((error.code, error.params.get("reason")))
        else:
            found.add(("nothing", None))
    return found


class TestRefused:
    @pytest.mark.parametrize(
        ("keys", "reason"),
        [
            ({"secret_key": "another"}, "SignatureDoesNotMatch"),
            ({"key_id": "nobody"}, "InvalidAccessKeyId"),
        ],
    )
    async def test_wrong_keys(self, place: Place, tmp_path: Path, keys: dict[str, str], reason: str) -> None:
        given = {"key_id": place.keys.key_id, "secret_key": place.keys.secret_key} | keys
        store = bucket_store(place.open(keys=BucketKeys(**given)), tmp_path)
        assert await trouble_of(store) == {("BLOB_STORE_DENIED", reason)}

    async def test_somebody_elses_bucket(self, place: Place, tmp_path: Path) -> None:
        store = bucket_store(place.open(bucket=place.closed_bucket), tmp_path)
        assert await trouble_of(store) == {("BLOB_STORE_DENIED", "AccessDenied")}

    async def test_no_such_bucket(self, place: Place, tmp_path: Path) -> None:
        """SeaweedFS keeps from those who may not make buckets which there are."""
        store = bucket_store(place.open(bucket=place.missing_bucket), tmp_path)
        (trouble,) = await trouble_of(store)
        assert trouble in {("BLOB_BUCKET_NOT_FOUND", "NoSuchBucket"), ("BLOB_STORE_DENIED", "AccessDenied")}

    async def test_no_keys_in_what_is_shown(self, place: Place) -> None:
        assert place.keys.secret_key not in repr(place.keys)


class TestBadConnection:
    async def test_nobody_there(self, place: Place, tmp_path: Path) -> None:
        store = bucket_store(place.open(endpoint="http://127.0.0.1:9", patience=QUICK), tmp_path)
        assert {code for code, _ in await trouble_of(store)} == {"BLOB_STORE_FAILED"}

    async def test_cut_in_the_middle_and_taken_up_again(self, store: BucketBlobStore, wire: Wire) -> None:
        data = os.urandom(5 * MIB + 3)
        await store.put(KEY, one_chunk(data))
        wire.cuts = [MIB + 77, 2 * MIB, 300]
        assert await read_all(store, KEY) == data
        wire.cuts = [MIB]
        assert b"".join([chunk async for chunk in store.read(KEY, 1000, 4 * MIB)]) == data[1000 : 4 * MIB]
        assert wire.broken == 4

    async def test_cut_again_and_again(
        self, store: BucketBlobStore, wire: Wire, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("runtime_envs.packages.bucket._RESUME_AFTER_S", 0.01)
        await store.put(KEY, one_chunk(bytes(2 * MIB)))
        wire.cuts = [MIB, *[100] * 99]
        with pytest.raises(Unavailable, match="BLOB_STORE_FAILED"):
            await read_all(store, KEY)

    async def test_silent_in_the_middle(self, store: BucketBlobStore, wire: Wire) -> None:
        data = os.urandom(2 * MIB)
        await store.put(KEY, one_chunk(data))
        wire.stalls = [MIB]
        assert await read_all(store, KEY) == data
        assert wire.broken == 1

    async def test_silent_from_the_start(self, store: BucketBlobStore, wire: Wire) -> None:
        wire.stalls = [0] * 99
        started = time.monotonic()
        with pytest.raises(Unavailable, match="BLOB_STORE_FAILED"):
            await store.put(KEY, one_chunk(b"x"))
        assert time.monotonic() - started < 10
        assert list(store.spool_dir.iterdir()) == []


class TestChangedUnderUs:
    @pytest.mark.parametrize("to", [b"new", bytes(3 * MIB), None])
    async def test_is_told_and_never_mixed(self, store: BucketBlobStore, wire: Wire, to: bytes | None) -> None:
        data = os.urandom(3 * MIB)
        await store.put(KEY, one_chunk(data))
        wire.cuts = [2 * MIB]
        reader = store.read(KEY)
        got = await anext(reader)
        await (store.delete(KEY) if to is None else store.put(KEY, one_chunk(to)))

        async def the_rest() -> None:
            nonlocal got
            async for chunk in reader:
                got += chunk

        with pytest.raises(Unavailable, match="BLOB_CHANGED"):
            await the_rest()
        assert data.startswith(got)


class TestInParts:
    @pytest.mark.parametrize("size", [PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 5])
    async def test_put_and_read(self, place: Place, tmp_path: Path, size: int) -> None:
        store = bucket_store(place.open(), tmp_path)
        await store.prepare()
        data = os.urandom(size)
        await store.put(KEY, one_chunk(data))
        assert await read_all(store, KEY) == data

    async def test_memory_is_bounded(self, s3_place: Place, tmp_path: Path) -> None:
        store = bucket_store(s3_place.open(), tmp_path)
        await store.prepare()

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield bytes(MIB)

        tracemalloc.start()
        try:
            await store.put(KEY, chunks())
            size = sum([len(chunk) async for chunk in store.read(KEY)])
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size == 100 * MIB
        assert most < 40 * MIB

    async def test_a_refused_part_leaves_nothing(self, cos_place: Place, tmp_path: Path) -> None:
        store, state = bucket_store(cos_place.open(), tmp_path), cos_place.state
        await store.prepare()
        assert state is not None
        state.failures = [("PUT", 403, "AccessDenied")]
        with pytest.raises(Unavailable, match="BLOB_STORE_DENIED"):
            await store.put(KEY, one_chunk(bytes(PART_BYTES + 1)))
        assert (state.failures, state.uploads) == ([], {})
        assert await store.size_bytes(KEY) is None

    async def test_a_passing_refusal_is_overcome(self, cos_place: Place, tmp_path: Path) -> None:
        store, state = bucket_store(cos_place.open(), tmp_path), cos_place.state
        await store.prepare()
        assert state is not None
        state.failures = [("PUT", 503, "SlowDown"), ("GET", 500, "InternalError")]
        await store.put(KEY, one_chunk(b"x"))
        assert await read_all(store, KEY) == b"x"


async def test_many_blobs_are_listed_page_by_page(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime_envs.packages.bucket_store._PAGE", 3)
    store = bucket_store(place.open(), tmp_path)
    await store.prepare()
    keys = {f"logs/run/{number}" for number in range(8)}
    for key in keys:
        await store.put(key, one_chunk(b"x"))
    assert {blob.key async for blob in store.find("logs/")} == keys


async def test_installations_in_one_bucket_do_not_meet(place: Place, tmp_path: Path) -> None:
    ours, theirs = (bucket_store(place.open(), tmp_path / name) for name in ("ours", "theirs"))
    await ours.prepare()
    await ours.put(KEY, one_chunk(b"x"))
    await theirs.prepare()
    assert [blob async for blob in theirs.find("")] == []
    with pytest.raises(NotFound):
        await read_all(theirs, KEY)


async def test_in_a_versioned_bucket_a_reader_keeps_its_version(s3_place: Place, tmp_path: Path) -> None:
    async with wire_to(s3_place.port) as wire:
        store = bucket_store(s3_place.open(bucket=VERSIONED_BUCKET, endpoint=wire.endpoint), tmp_path)
        await store.prepare()
        data = os.urandom(3 * MIB)
        await store.put(KEY, one_chunk(data))
        wire.cuts = [2 * MIB]
        reader = store.read(KEY)
        got = await anext(reader)
        await store.put(KEY, one_chunk(b"new"))
        assert got + b"".join([chunk async for chunk in reader]) == data
        assert await read_all(store, KEY) == b"new"
