"""Packages from object storage: whatever is wrong there is told at the field that can mend it, and nothing is kept."""

import hashlib
import io
import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.settings import Settings
from api.wiring import Services, prepare, wire
from kernel.actor import Role
from runtime_envs.packages.bucket import BucketType
from tests.api.conftest import ADMIN_SECRET, SignIn
from tests.builders.broken_wire import Wire, wire_to
from tests.builders.object_stores import Place

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

MIB = 2**20
KEY = "jobs/训练 v1/package.zip"


def zip_of(data: bytes = b"print(1)\n", name: str = "main.py") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


@pytest.fixture
async def line(place: Place) -> AsyncIterator[Wire]:
    async with wire_to(place.port) as line:
        yield line


@pytest.fixture
async def services(database_url: str, tmp_path: Path, place: Place, line: Wire) -> AsyncIterator[Services]:
    settings = Settings(
        state_dir=tmp_path,
        database_url=database_url,
        admin_token=ADMIN_SECRET,
        object_endpoints=f"{line.endpoint} {place.endpoint}",
        max_cos_package_bytes=128 * MIB,
    )
    services = wire(settings)
    await prepare(services)
    yield services
    await services.database.close()


@pytest.fixture
async def source(client: httpx.AsyncClient, place: Place, line: Wire) -> dict[str, Any]:
    await add_credential(client, place, "store", place.keys.secret_key)
    region = "ap-guangzhou" if place.type is BucketType.COS else None
    return {
        "type": place.type,
        "bucket": place.bucket,
        "key": KEY,
        "region": region,
        "endpoint": line.endpoint,
        "credential": "store",
    }


async def add_credential(client: httpx.AsyncClient, place: Place, name: str, secret: str) -> None:
    names = {BucketType.COS: ("secret_id", "secret_key"), BucketType.S3: ("access_key_id", "secret_access_key")}
    data = dict(zip(names[place.type], (place.keys.key_id, secret), strict=True))
    answer = await client.post("/credentials", json={"name": name, "type": place.type, "data": data})
    assert answer.status_code == 201, answer.text


async def fetch(client: httpx.AsyncClient, source: dict[str, Any], **params: Any) -> httpx.Response:
    return await client.post("/packages", json={"source": source}, **params)


async def is_clean(client: httpx.AsyncClient, services: Services) -> bool:
    kept = [blob async for blob in services.blobs.find("")]
    return (await client.get("/packages")).json()["items"] == kept == list(services.blobs.spool_dir.iterdir())


async def test_fetched_pinned_and_kept(client: httpx.AsyncClient, source: dict[str, Any], place: Place) -> None:
    data = zip_of(os.urandom(3 * MIB))
    place.open().put(KEY, data)
    answer = await fetch(client, source)
    package = answer.json()
    assert (answer.status_code, package["sha256"]) == (201, hashlib.sha256(data).hexdigest())
    assert (package["file_name"], package["size_bytes"]) == ("package.zip", len(data))
    etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
    assert package["source"] == source | {"etag": etag, "version": None}
    place.open().delete(KEY)
    assert (await client.get(f"/packages/{package['id']}/content")).content == data
    again = await client.post("/packages", files={"file": ("a.zip", data)})
    assert (again.status_code, again.json()["id"]) == (200, package["id"])


@pytest.mark.parametrize("place", ["s3"], indirect=True)
async def test_beyond_what_an_upload_may_have(client: httpx.AsyncClient, source: dict[str, Any], place: Place) -> None:
    place.open().put(KEY, zip_of(os.urandom(MIB) * 101))
    answer = await fetch(client, source)
    assert (answer.status_code, answer.json()["size_bytes"] > 101 * MIB) == (201, True), answer.text


async def test_cut_in_the_middle_and_taken_up_again(
    client: httpx.AsyncClient, source: dict[str, Any], place: Place, line: Wire
) -> None:
    data = zip_of(os.urandom(3 * MIB))
    place.open().put(KEY, data)
    line.cuts = [MIB, 2 * MIB]
    answer = await fetch(client, source)
    assert (answer.status_code, answer.json()["sha256"]) == (201, hashlib.sha256(data).hexdigest())
    assert line.broken == 2


async def test_cut_for_good(  # noqa: PLR0917 - fixtures and columns of the table
    client: httpx.AsyncClient,
    services: Services,
    source: dict[str, Any],
    place: Place,
    line: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime_envs.packages.bucket._RESUMES", 1)
    place.open().put(KEY, zip_of(os.urandom(3 * MIB)))
    line.cuts = [MIB, *[0] * 99]
    answer = await fetch(client, source)
    assert (answer.status_code, answer.json()["code"]) == (503, "OBJECT_STORE_FAILED")
    assert await is_clean(client, services)


@pytest.mark.parametrize("to", [zip_of(b"other"), None])
async def test_changed_under_us(  # noqa: PLR0917 - fixtures and columns of the table
    client: httpx.AsyncClient, services: Services, source: dict[str, Any], place: Place, line: Wire, to: bytes | None
) -> None:
    bucket = place.open()
    bucket.put(KEY, zip_of(os.urandom(3 * MIB)))
    line.cuts = [2 * MIB]
    line.on_break = lambda: bucket.put(KEY, to) if to else bucket.delete(KEY)
    answer = await fetch(client, source)
    assert (answer.status_code, answer.json()["code"]) == (409, "OBJECT_CHANGED"), answer.text
    assert await is_clean(client, services)


@pytest.mark.parametrize(
    ("data", "key", "status", "code"),
    [
        (b"no ZIP", KEY, 422, "PACKAGE_NOT_ZIP"),
        (b"", KEY, 422, "PACKAGE_NOT_ZIP"),
        (zip_of(), "a.tar", 422, "PACKAGE_NOT_ZIP"),
        (zip_of(name="../a.py"), KEY, 422, "PACKAGE_UNSAFE_ENTRY"),
        (zip_of()[:-5], KEY, 422, "PACKAGE_CORRUPT"),
    ],
)
async def test_checked_like_an_upload(  # noqa: PLR0917 - fixtures and columns of the table
    client: httpx.AsyncClient,
    services: Services,
    source: dict[str, Any],
    place: Place,
    data: bytes,
    key: str,
    status: int,
    code: str,
) -> None:
    place.open().put(key, data)
    problem = (await fetch(client, source | {"key": key})).json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["errors"][0]["pointer"] == "/source/key"
    assert await is_clean(client, services)


async def test_too_large_is_told_before_it_comes(
    client: httpx.AsyncClient, services: Services, source: dict[str, Any], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services.object_packages, "_limits", type("Limits", (), {"max_object_bytes": 10}))
    place.open().put(KEY, zip_of())
    answer = await fetch(client, source)
    assert (answer.status_code, answer.json()["code"]) == (413, "OBJECT_TOO_LARGE")
    assert answer.json()["params"] == {"limit_bytes": 10}


@pytest.mark.parametrize(
    ("change", "status", "code", "pointer"),
    [
        ({"key": "gone.zip"}, 422, "OBJECT_NOT_FOUND", "/source/key"),
        ({"bucket": "CLOSED"}, 422, "OBJECT_ACCESS_DENIED", "/source/credential"),
        ({"credential": "wrong"}, 422, "OBJECT_ACCESS_DENIED", "/source/credential"),
        ({"credential": "ghost"}, 422, "REFERENCE_NOT_FOUND", "/source/credential"),
        ({"credential": "token"}, 422, "REFERENCE_NOT_FOUND", "/source/credential"),
        ({"endpoint": "http://169.254.0.23"}, 422, "OBJECT_ENDPOINT_NOT_ALLOWED", "/source/endpoint"),
        ({"endpoint": "http://127.0.0.1:1"}, 422, "OBJECT_ENDPOINT_NOT_ALLOWED", "/source/endpoint"),
        ({"bucket": "a@evil.example/"}, 422, "INVALID_VALUE", "/source/bucket"),
        ({"bucket": "x"}, 422, "INVALID_VALUE", "/source/bucket"),
        ({"region": "a.evil.example#"}, 422, "INVALID_VALUE", "/source/region"),
        ({"key": "a/../b.zip"}, 422, "INVALID_VALUE", "/source/key"),
        ({"key": "/a.zip"}, 422, "INVALID_VALUE", "/source/key"),
        ({"key": "a\nb.zip"}, 422, "INVALID_VALUE", "/source/key"),
        ({"type": "ftp"}, 422, "INVALID_VALUE", "/source/type"),
        ({"color": 1}, 422, "UNKNOWN_FIELD", "/source/color"),
    ],
)
async def test_refusals_name_the_field(  # noqa: PLR0917 - fixtures and columns of the table
    client: httpx.AsyncClient,
    services: Services,
    source: dict[str, Any],
    place: Place,
    change: dict[str, Any],
    status: int,
    code: str,
    pointer: str,
) -> None:
    await add_credential(client, place, "wrong", "another-secret")
    await client.post("/credentials", json={"name": "token", "type": "ray_token", "data": {"token": "t"}})
    if change.get("bucket") == "CLOSED":
        change = {"bucket": place.closed_bucket}
    answer = await fetch(client, source | change)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem["errors"][0]["pointer"] == pointer
    assert place.keys.secret_key not in answer.text
    assert await is_clean(client, services)


async def test_a_bucket_that_is_not_there(client: httpx.AsyncClient, source: dict[str, Any], place: Place) -> None:
    """SeaweedFS keeps from those who may not make buckets which there are."""
    problem = (await fetch(client, source | {"bucket": place.missing_bucket})).json()
    assert problem["code"] == ("BUCKET_NOT_FOUND" if place.type is BucketType.COS else "OBJECT_ACCESS_DENIED")


async def test_a_dry_run_checks_and_stores_nothing(
    client: httpx.AsyncClient, services: Services, source: dict[str, Any], place: Place
) -> None:
    place.open().put(KEY, zip_of())
    answer = await fetch(client, source, params={"dry_run": True})
    assert (answer.status_code, answer.json()["entries"]) == (200, 1)
    assert await is_clean(client, services)


async def test_a_repeated_key_gets_the_first_answer_and_asks_nobody(
    client: httpx.AsyncClient, source: dict[str, Any], place: Place
) -> None:
    place.open().put(KEY, zip_of())
    key = {"Idempotency-Key": "fetch-1"}
    first = await fetch(client, source, headers=key)
    place.open().delete(KEY)
    again = await fetch(client, source, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())


async def test_who_may(client: httpx.AsyncClient, sign_in: SignIn, source: dict[str, Any], place: Place) -> None:
    place.open().put(KEY, zip_of())
    assert (await fetch(await sign_in(Role.VIEWER), source)).status_code == 403
    assert (await fetch(await sign_in(Role.SUBMITTER), source)).status_code == 201
