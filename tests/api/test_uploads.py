"""Uploads that go on after a cut, as the tus protocol 1.0.0 has it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession

from api.app import create_app
from api.cleaning import Cleaning
from api.settings import Settings
from api.wiring import Services, prepare, wire
from kernel.actor import Actor, Role
from kernel.db import Database
from rayjobs.retention import Keep
from runtime_envs.model import Incoming, Package
from runtime_envs.packages.base import one_chunk
from runtime_envs.uploads import KEEP, UploadLimits, Uploads
from tests.api.conftest import ADMIN_SECRET, SignIn
from tests.api.test_packages import zip_of
from tests.api.tus import PIECE, TUS, announce, announcement, offset_of, send

ZIP = zip_of(main="print(1)")
HALF = len(ZIP) // 2
LIMITS = UploadLimits(part_bytes=50, parts=8, at_once=3)


class Clock:
    def __init__(self) -> None:
        self.later = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.later


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def services(database_url: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Services]:
    """With small parts, so that a few bytes are several."""
    services = wire(Settings(state_dir=tmp_path, database_url=database_url, admin_token=ADMIN_SECRET), clock)
    uploads = Uploads(services.database, services.blobs, clock, services.packages, LIMITS)
    services = replace(services, uploads=uploads)
    await prepare(services)
    yield services
    await services.database.close()


class LostAnswers:
    """A database whose connection is lost after each commit, before it is told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read = database.read

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        async with self._database.write() as session:
            yield session
        raise ConnectionResetError


async def kept(services: Services) -> list[str]:
    return [blob.key.split("/")[0] async for blob in services.blobs.find("")]


async def test_in_pieces(client: httpx.AsyncClient, services: Services) -> None:
    path = await announce(client, len(ZIP), filename="作业.zip", sha256=hashlib.sha256(ZIP).hexdigest())
    assert await offset_of(client, path) == 0
    first = await send(client, path, 0, ZIP[:HALF])
    assert (first.status_code, first.headers["upload-offset"], first.content) == (204, str(HALF), b"")
    assert parsedate_to_datetime(first.headers["upload-expires"]) > datetime.now(UTC) + KEEP / 2
    assert await offset_of(client, path) == HALF
    assert (await client.get("/packages")).json()["items"] == []
    last = await send(client, path, HALF, ZIP[HALF:])
    assert (last.status_code, last.headers["upload-offset"]) == (204, str(len(ZIP)))
    package = (await client.get(last.headers["content-location"].removeprefix("/api/v1"))).json()
    assert (package["file_name"], package["sha256"]) == ("作业.zip", hashlib.sha256(ZIP).hexdigest())
    assert package["source"] == {"type": "upload"}
    assert (await client.get(f"/packages/{package['id']}/content")).content == ZIP
    assert (await client.get(path)).json()["package"] == package["id"]
    assert sorted(await kept(services)) == ["packages", "packages"]


async def test_the_same_bytes_are_the_same_package(client: httpx.AsyncClient, services: Services) -> None:
    known = (await client.post("/packages", files={"file": ("job.zip", ZIP)})).json()
    path = await announce(client, len(ZIP))
    await send(client, path, 0, ZIP)
    assert (await client.get(path)).json()["package"] == known["id"]
    assert len(await kept(services)) == 2


async def test_a_restart_loses_nothing(client: httpx.AsyncClient, services: Services) -> None:
    path = await announce(client, len(ZIP))
    await send(client, path, 0, ZIP[:HALF])
    again = wire(services.settings)
    await prepare(again)
    headers = {"Authorization": f"Bearer {ADMIN_SECRET}"}
    transport = httpx.ASGITransport(app=create_app(again))
    async with httpx.AsyncClient(transport=transport, base_url=client.base_url, headers=headers) as other:
        assert await offset_of(other, path) == HALF
        assert (await send(other, path, HALF, ZIP[HALF:])).headers["content-location"]
    await again.database.close()


async def test_only_from_where_it_stands(client: httpx.AsyncClient) -> None:
    path = await announce(client, len(ZIP))
    await send(client, path, 0, ZIP[:HALF])
    for offset in (0, HALF - 1, HALF + 1):
        answer = await send(client, path, offset, ZIP[offset:])
        assert (answer.status_code, answer.json()["code"]) == (409, "UPLOAD_OFFSET_WRONG")
    assert await offset_of(client, path) == HALF


async def test_of_two_senders_at_once_one_wins(client: httpx.AsyncClient) -> None:
    path = await announce(client, len(ZIP))
    answers = await asyncio.gather(*(send(client, path, 0, ZIP) for _ in range(4)))
    assert {answer.status_code for answer in answers} <= {204, 409}
    while (done := await offset_of(client, path)) < len(ZIP):
        await send(client, path, done, ZIP[done:])
    package = (await client.get(path)).json()["package"]
    assert (await client.get(f"/packages/{package}/content")).content == ZIP


async def test_a_last_piece_sent_again_while_it_is_checked(
    client: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second check begins when the first has deleted the parts."""
    take, both_came, one_is_done = services.packages.take, asyncio.Event(), asyncio.Event()
    waits = [both_came, one_is_done]

    async def take_later(incoming: Incoming, actor: Actor) -> tuple[Package, bool]:
        wait = waits.pop(0)
        if not waits:
            both_came.set()
        await wait.wait()
        return await take(incoming, actor)

    path = await announce(client, len(ZIP))
    await send(client, path, 0, ZIP[:-9])
    monkeypatch.setattr(services.packages, "take", take_later)
    sending = [asyncio.create_task(send(client, path, len(ZIP) - 9, ZIP[-9:])) for _ in range(2)]
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    one_is_done.set()
    answers = await asyncio.gather(*sending)
    package = (await client.get(path)).json()["package"]
    for answer in answers:
        assert answer.status_code == 204, answer.text
        assert answer.headers["content-location"].endswith(package)
    assert await kept(services) == ["packages", "packages"]


async def test_a_commit_whose_answer_is_lost(client: httpx.AsyncClient, services: Services, clock: Clock) -> None:
    path = await announce(client, len(ZIP))
    database: Any = LostAnswers(services.database)
    uploads = Uploads(database, services.blobs, clock, services.packages, LIMITS)
    owner = Actor(user=(await client.get("/uploads")).json()["items"][0]["created_by"], role=Role.SUBMITTER)
    with pytest.raises(ConnectionResetError):
        await uploads.append(path.split("/")[-1], 0, one_chunk(ZIP), owner)
    done = await offset_of(client, path)
    assert done == LIMITS.part_bytes
    assert (await send(client, path, done, ZIP[done:])).headers["content-location"]


async def test_a_part_that_is_lost(client: httpx.AsyncClient, services: Services) -> None:
    path = await announce(client, len(ZIP))
    await send(client, path, 0, ZIP[:HALF])
    async for blob in services.blobs.find("uploads/"):
        await services.blobs.delete(blob.key)
        break
    answer = await send(client, path, HALF, ZIP[HALF:])
    assert (answer.status_code, answer.json()["code"]) == (404, "UPLOAD_PART_LOST")
    assert (await client.get(path)).json()["code"] == "UPLOAD_NOT_FOUND"
    assert await kept(services) == []


async def test_what_is_refused_at_the_end_is_gone(client: httpx.AsyncClient, services: Services) -> None:
    path = await announce(client, len(ZIP))
    answer = await send(client, path, 0, ZIP[:-1] + b"x")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["errors"][0]["pointer"]) == (422, "PACKAGE_CORRUPT", "/file")
    assert (await client.get(path)).json()["code"] == "UPLOAD_NOT_FOUND"
    assert await kept(services) == []


async def test_a_file_that_changed_on_its_way(client: httpx.AsyncClient, services: Services) -> None:
    path = await announce(client, len(ZIP), sha256="0" * 64)
    assert (await send(client, path, 0, ZIP)).json()["code"] == "UPLOAD_CHANGED"
    assert await kept(services) == []


async def test_more_than_was_announced(client: httpx.AsyncClient) -> None:
    path = await announce(client, len(ZIP) - 1)
    answer = await send(client, path, 0, ZIP)
    assert (answer.status_code, answer.json()["code"]) == (413, "UPLOAD_TOO_LONG")
    assert await offset_of(client, path) < len(ZIP) - 1


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        (announcement(100 * 2**20 + 1, filename="a.zip"), 413, "PACKAGE_TOO_LARGE"),
        (announcement(0, filename="a.zip"), 422, "PACKAGE_NOT_ZIP"),
        (announcement(9, filename="a.tar"), 422, "PACKAGE_NOT_ZIP"),
        (announcement(9, sha256="abc"), 400, "MALFORMED_REQUEST"),
        (TUS, 400, "MALFORMED_REQUEST"),
        (TUS | {"Upload-Length": "-1"}, 400, "MALFORMED_REQUEST"),
        (TUS | {"Upload-Length": "9", "Upload-Metadata": "filename a.zip"}, 400, "MALFORMED_REQUEST"),
        ({"Upload-Length": "9"}, 412, "TUS_VERSION_WRONG"),
        ({"Upload-Length": "9", "Tus-Resumable": "0.2.2"}, 412, "TUS_VERSION_WRONG"),
    ],
)
async def test_announcements_that_are_refused(
    client: httpx.AsyncClient, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await client.post("/uploads", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["tus-version"] == "1.0.0"
    assert (await client.get("/uploads")).json()["items"] == []


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        (TUS | PIECE, 400, "MALFORMED_REQUEST"),
        (TUS | {"Upload-Offset": "0", "Content-Type": "application/zip"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (PIECE | {"Upload-Offset": "0"}, 412, "TUS_VERSION_WRONG"),
    ],
)
async def test_pieces_that_are_refused(
    client: httpx.AsyncClient, headers: dict[str, str], status: int, code: str
) -> None:
    path = await announce(client, len(ZIP))
    answer = await client.patch(path, content=ZIP, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await offset_of(client, path) == 0


async def test_what_it_can_do(client: httpx.AsyncClient) -> None:
    answer = await client.options("/uploads")
    assert (answer.status_code, answer.headers["tus-extension"]) == (204, "creation,expiration,termination")
    assert (answer.headers["tus-version"], answer.headers["tus-max-size"]) == ("1.0.0", str(100 * 2**20))


async def test_it_is_its_owners_only(app: FastAPI, sign_in: SignIn) -> None:
    ann, bob, viewer = [await sign_in(role, user) for role, user in OWNERS]
    path = await announce(ann, len(ZIP))
    assert (await viewer.post("/uploads", headers=announcement(9, filename="a.zip"))).status_code == 403
    for other in (bob, viewer):
        assert (await other.get(path)).status_code == 404
        assert (await send(other, path, 0, ZIP)).status_code in {403, 404}
        assert (await other.delete(path, headers=TUS)).status_code == 404
        assert (await other.get("/uploads")).json()["items"] == []
    assert [one["offset_bytes"] for one in (await ann.get("/uploads")).json()["items"]] == [0]


OWNERS = [(Role.SUBMITTER, "ann"), (Role.OPERATOR, "bob"), (Role.VIEWER, "eve")]


async def test_given_up(client: httpx.AsyncClient, services: Services) -> None:
    path = await announce(client, len(ZIP))
    await send(client, path, 0, ZIP[:HALF])
    assert (await client.delete(path, headers=TUS)).status_code == 204
    assert (await client.get(path)).status_code == 404
    assert await kept(services) == []


async def test_found_again_by_what_is_in_it(client: httpx.AsyncClient) -> None:
    sha256 = hashlib.sha256(ZIP).hexdigest()
    path = await announce(client, len(ZIP), sha256=sha256)
    await announce(client, 9)
    (found,) = (await client.get("/uploads", params={"sha256": sha256})).json()["items"]
    assert path.endswith(found["id"])
    await send(client, path, 0, ZIP)
    assert (await client.get("/uploads", params={"sha256": sha256})).json()["items"] == []


async def test_so_many_and_no_more(client: httpx.AsyncClient, sign_in: SignIn) -> None:
    paths = [await announce(client, 9) for _ in range(3)]
    answer = await client.post("/uploads", headers=announcement(9, filename="a.zip"))
    assert (answer.status_code, answer.json()["code"]) == (409, "UPLOADS_TOO_MANY")
    await announce(await sign_in(Role.SUBMITTER, "ann"), 9)
    await client.delete(paths[0], headers=TUS)
    await announce(client, 9)


async def test_not_in_any_number_of_pieces(client: httpx.AsyncClient) -> None:
    path = await announce(client, len(ZIP))
    answers = [await send(client, path, at, ZIP[at : at + 1]) for at in range(9)]
    assert [answer.status_code for answer in answers] == [204] * 8 + [409]
    assert answers[-1].json()["code"] == "UPLOAD_TOO_MANY_PARTS"


async def test_a_dry_run_stores_nothing(client: httpx.AsyncClient) -> None:
    ahead = announcement(9, filename="a.zip")
    assert (await client.post("/uploads?dry_run=true", headers=ahead)).status_code == 200
    assert (await client.get("/uploads")).json()["items"] == []


async def test_untouched_for_a_day(client: httpx.AsyncClient, services: Services, clock: Clock) -> None:
    path = await announce(client, len(ZIP))
    clock.later = KEEP * 0.9
    await send(client, path, 0, ZIP[:HALF])
    clock.later = KEEP * 1.8
    assert await offset_of(client, path) == HALF
    clock.later = KEEP * 2
    assert (await client.get(path)).status_code == 404
    assert await kept(services) != []
    keep = Keep(runs_days=1, logs_days=1)
    await Cleaning(database=services.database, blobs=services.blobs, clock=clock, keep=keep).try_once()
    assert await kept(services) == []
