"""Packages from stream to row and back, on real databases and a real directory."""

import asyncio
import io
import os
import zipfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor, Role
from kernel.db import Database
from kernel.errors import Conflict, Denied, InvalidInput, Malformed, MusterError, NotFound, TooLarge
from kernel.events import AuditRow
from kernel.paging import PageRequest
from runtime_envs.model import PackageLimits
from runtime_envs.packages.base import one_chunk, read_all
from runtime_envs.packages.local import LocalBlobStore
from runtime_envs.reconcile import Collected, collect
from runtime_envs.service import PackageService, RayUploads

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAY_S = 24 * 3600
ANN = Actor(user="ann", role=Role.SUBMITTER)
BOB = Actor(user="bob", role=Role.SUBMITTER)
FILES = {"main.py": b"print(1)\n", "config.yaml": b"a: 1\n"}


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


class Users:
    """Stands for rayjobs, which knows who uses a package."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[str]] = {}

    async def __call__(self, session: AsyncSession, package_id: str) -> list[str]:
        del session
        return self.jobs.get(package_id, [])


class World:
    def __init__(self, database: Database, folder: Path, limits: PackageLimits) -> None:
        self.database = database
        self.blobs = LocalBlobStore(folder)
        self.clock = Clock()
        self.users = Users()
        self.packages = PackageService(database, self.blobs, self.clock, limits, self.users)
        self.uploads = RayUploads(database, self.blobs, self.clock, limits)

    async def keys(self) -> set[str]:
        return {blob.key async for blob in self.blobs.find("")}

    async def collect(self, *, now: datetime, keep_ray_uploads_s: float = 30 * DAY_S) -> Collected:
        return await collect(self.database, self.blobs, now, keep_ray_uploads_s=keep_ray_uploads_s)


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> World:
    world = World(database, tmp_path / "blobs", PackageLimits(max_upload_bytes=1_000_000))
    await world.blobs.prepare()
    return world


def zip_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def of_size(size: int) -> bytes:
    """A ZIP of exactly so many bytes."""
    frame = len(zip_of({"f": b""}))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("f"), os.urandom(size - frame))
    return out.getvalue()


async def code_of(action: Awaitable[object]) -> str:
    with pytest.raises(MusterError) as caught:
        await action
    return caught.value.code


class TestUpload:
    async def test_stored_and_told(self, world: World) -> None:
        data = zip_of(FILES)
        package, created = await world.packages.upload(one_chunk(data), "C:\\work\\my job.zip", ANN)
        assert created
        assert (package.file_name, package.size_bytes, package.entry_count) == ("my job.zip", len(data), 2)
        assert (package.unpacked_bytes, package.created_by, package.created_at) == (14, "ann", NOW)
        assert package.source == {"type": "upload"}
        assert await world.packages.get(package.id) == package
        assert await read_all(world.blobs, package.blob_key) == data
        assert b"".join([chunk async for chunk in world.packages.content(package, 2, 6)]) == data[2:6]
        assert [(e.name, e.size_bytes) for e in await world.packages.entries(package.id)] == [
            ("main.py", 9),
            ("config.yaml", 5),
        ]

    async def test_warnings_come_back_from_the_row(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of({"proj/main.py": b"x"})), "a.zip", ANN)
        assert [(w.code, w.params) for w in (await world.packages.get(package.id)).warnings] == [
            ("SINGLE_TOP_FOLDER", {"folder": "proj"})
        ]

    async def test_same_bytes_same_id_whoever_sends_them(self, world: World) -> None:
        first, _ = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        again, created = await world.packages.upload(one_chunk(zip_of(FILES)), "b.zip", BOB)
        assert (again, created) == (first, False)
        assert await world.keys() == {first.blob_key, first.entries_key}

    async def test_the_same_bytes_many_times_at_once(self, world: World) -> None:
        answers = await asyncio.gather(
            *(world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN) for _ in range(8))
        )
        assert len({package.id for package, _ in answers}) == 1
        assert sum(created for _, created in answers) == 1
        assert await world.keys() == {answers[0][0].blob_key, answers[0][0].entries_key}

    async def test_the_limit_is_inclusive_and_counts_what_came(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(of_size(1_000_000)), "a.zip", ANN)
        assert package.size_bytes == 1_000_000
        with pytest.raises(TooLarge) as caught:
            await world.packages.upload(one_chunk(of_size(1_000_001)), "a.zip", ANN)
        assert (caught.value.code, caught.value.params) == ("PACKAGE_TOO_LARGE", {"limit_bytes": 1_000_000})
        assert caught.value.pointer == "/file"

    async def test_default_limit(self) -> None:
        assert PackageLimits().max_upload_bytes == 100 * 1024 * 1024
        assert PackageLimits().archive.max_unpacked_bytes == 2 * 1024**3

    @pytest.mark.parametrize(
        ("name", "code"), [("a.tar.gz", "PACKAGE_NOT_ZIP"), ("zip", "PACKAGE_NOT_ZIP"), ("a.zip/", "PACKAGE_NOT_ZIP")]
    )
    async def test_file_name(self, world: World, name: str, code: str) -> None:
        assert await code_of(world.packages.upload(one_chunk(zip_of(FILES)), name, ANN)) == code

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            (None, "package.zip"),
            ("A.ZIP", "A.ZIP"),
            ("../../x.zip", "x.zip"),
            ("a\r\nb.zip", "ab.zip"),
            ("n" * 300 + ".zip", "n" * 251 + ".zip"),
        ],
    )
    async def test_file_name_is_made_harmless(self, world: World, given: str | None, kept: str) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of(FILES)), given, ANN)
        assert package.file_name == kept

    @pytest.mark.parametrize(
        ("data", "code"),
        [(b"hello", "PACKAGE_NOT_ZIP"), (zip_of({}), "PACKAGE_EMPTY"), (zip_of({"../x": b""}), "PACKAGE_UNSAFE_ENTRY")],
    )
    async def test_refused_and_nothing_kept(self, world: World, data: bytes, code: str) -> None:
        assert await code_of(world.packages.upload(one_chunk(data), "a.zip", ANN)) == code
        assert await world.keys() == set()
        assert list(world.blobs.spool_dir.iterdir()) == []

    async def test_broken_connection_keeps_nothing(self, world: World) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield zip_of(FILES)
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            await world.packages.upload(chunks(), "a.zip", ANN)
        assert await world.keys() == set()

    async def test_dry_run_stores_nothing(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN, dry_run=True)
        assert package.entry_count == 2
        assert await world.keys() == set()
        assert await code_of(world.packages.get(package.id)) == "NOT_FOUND"

    async def test_a_viewer_may_not(self, world: World) -> None:
        with pytest.raises(Denied):
            await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", replace(ANN, role=Role.VIEWER))

    async def test_audit(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        await world.packages.delete(package.id, ANN)
        async with world.database.read() as session:
            rows = await session.scalars(select(AuditRow).order_by(AuditRow.seq))
            assert [(r.actor, r.action, r.target_type, r.target) for r in rows] == [
                ("ann", "create", "package", package.id),
                ("ann", "delete", "package", package.id),
            ]


class TestList:
    async def upload_three(self, world: World) -> Sequence[str]:
        ids = []
        for n, actor in enumerate([ANN, BOB, ANN]):
            world.clock.time = NOW + timedelta(seconds=n)
            package, _ = await world.packages.upload(one_chunk(zip_of({f"{n}.py": b"x"})), f"{n}.zip", actor)
            ids.append(package.id)
        return ids

    async def test_pages_newest_first(self, world: World) -> None:
        first, second, third = await self.upload_three(world)
        page = await world.packages.list({}, PageRequest(limit=2))
        assert [package.id for package in page.items] == [third, second]
        rest = await world.packages.list({}, PageRequest(limit=2, cursor=page.next_cursor))
        assert ([package.id for package in rest.items], rest.next_cursor) == ([first], None)

    async def test_filter_and_sort(self, world: World) -> None:
        first, _, third = await self.upload_three(world)
        page = await world.packages.list({"created_by": "ann", "sha256": None}, PageRequest(sort="file_name"))
        assert [package.id for package in page.items] == [first, third]


class TestDelete:
    async def test_gone_and_may_come_back(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        await world.packages.delete(package.id, ANN)
        assert await code_of(world.packages.get(package.id)) == "NOT_FOUND"
        assert await world.keys() == set()
        back, created = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        assert created
        assert back.id != package.id

    async def test_in_use(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        world.users.jobs[package.id] = ["train", "eval"]
        with pytest.raises(Conflict) as caught:
            await world.packages.delete(package.id, ANN)
        assert (caught.value.code, caught.value.params) == ("PACKAGE_IN_USE", {"jobs": ["train", "eval"]})
        assert await world.packages.get(package.id) == package

    async def test_of_somebody_else(self, world: World) -> None:
        package, _ = await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        assert await code_of(world.packages.delete(package.id, BOB)) == "NOT_YOURS"
        await world.packages.delete(package.id, replace(BOB, role=Role.OPERATOR))

    async def test_unknown(self, world: World) -> None:
        with pytest.raises(NotFound):
            await world.packages.delete("pkg_none", ANN)


class TestRayUploads:
    async def test_kept_byte_for_byte_and_for_its_owner_only(self, world: World) -> None:
        data = zip_of(FILES)
        await world.uploads.put("ann", "_ray_pkg_0123456789abcdef.zip", one_chunk(data))
        assert await world.uploads.has("ann", "_ray_pkg_0123456789abcdef.zip")
        assert not await world.uploads.has("bob", "_ray_pkg_0123456789abcdef.zip")
        upload, chunks = await world.uploads.open("ann", "_ray_pkg_0123456789abcdef.zip")
        assert (upload.size_bytes, b"".join([chunk async for chunk in chunks])) == (len(data), data)
        assert await code_of(world.uploads.open("bob", "_ray_pkg_0123456789abcdef.zip")) == "RAY_UPLOAD_NOT_FOUND"

    async def test_a_name_put_again_gives_the_new_bytes(self, world: World) -> None:
        for data in (zip_of({"a": b"1"}), zip_of({"a": b"2"})):
            await world.uploads.put("ann", "lib-1.0+cu12-py3-none-any.whl", one_chunk(data))
        _, chunks = await world.uploads.open("ann", "lib-1.0+cu12-py3-none-any.whl")
        assert b"".join([chunk async for chunk in chunks]) == zip_of({"a": b"2"})

    async def test_the_same_name_many_times_at_once(self, world: World) -> None:
        await asyncio.gather(*(world.uploads.put("ann", "a.zip", one_chunk(zip_of(FILES))) for _ in range(6)))
        _, chunks = await world.uploads.open("ann", "a.zip")
        assert b"".join([chunk async for chunk in chunks]) == zip_of(FILES)

    async def test_an_empty_working_directory(self, world: World) -> None:
        await world.uploads.put("ann", "a.zip", one_chunk(zip_of({})))
        assert await world.uploads.has("ann", "a.zip")

    async def test_other_archives_are_taken_as_they_are(self, world: World) -> None:
        await world.uploads.put("ann", "a.tar.gz", one_chunk(b"\x1f\x8b whatever"))
        assert await world.uploads.has("ann", "a.tar.gz")

    @pytest.mark.parametrize("name", ["a.exe", "../a.zip", "a b.zip", "", ".zip", "a.zip\n", "n" * 300 + ".zip"])
    async def test_name(self, world: World, name: str) -> None:
        with pytest.raises(Malformed, match="RAY_UPLOAD_NAME_INVALID"):
            await world.uploads.put("ann", name, one_chunk(zip_of(FILES)))

    async def test_unsafe_and_too_large(self, world: World) -> None:
        with pytest.raises(InvalidInput, match="PACKAGE_UNSAFE_ENTRY"):
            await world.uploads.put("ann", "a.whl", one_chunk(zip_of({"/etc/x": b""})))
        with pytest.raises(TooLarge):
            await world.uploads.put("ann", "a.zip", one_chunk(bytes(1_000_001)))
        assert await world.keys() == set()


class TestCollect:
    async def test_what_is_referred_to_stays(self, world: World) -> None:
        await world.packages.upload(one_chunk(zip_of(FILES)), "a.zip", ANN)
        await world.uploads.put("ann", "a.zip", one_chunk(zip_of(FILES)))
        before = await world.keys()
        assert await world.collect(now=NOW + timedelta(days=20)) == Collected(blobs=0, size_bytes=0)
        assert await world.keys() == before

    async def test_what_a_crash_left_goes_after_a_day(self, world: World) -> None:
        await world.blobs.put("packages/orphan.zip", one_chunk(b"12345"))
        now = datetime.now(UTC)
        assert (await world.collect(now=now)).blobs == 0
        assert await world.collect(now=now + timedelta(days=2)) == Collected(blobs=1, size_bytes=5)

    async def test_replaced_and_unused_uploads_go(self, world: World) -> None:
        now = world.clock.time = datetime.now(UTC)
        for data in (b"old", b"new"):
            await world.uploads.put("ann", "a.tgz", one_chunk(data))
        await world.uploads.put("ann", "b.tgz", one_chunk(b"unused"))
        world.clock.time = now + timedelta(days=20)
        assert await world.uploads.has("ann", "a.tgz")
        await world.collect(now=now + timedelta(days=31))
        assert await world.uploads.has("ann", "a.tgz")
        assert not await world.uploads.has("ann", "b.tgz")
        assert len(await world.keys()) == 1

    async def test_logs_are_not_its_business(self, world: World) -> None:
        await world.blobs.put("runs/run_1/log", one_chunk(b"x"))
        await world.collect(now=datetime.now(UTC) + timedelta(days=99))
        assert await world.keys() == {"runs/run_1/log"}
