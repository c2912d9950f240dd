"""Whichever way a package comes, it is held to the same rules, told the same codes, and leaves nothing when refused."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.settings import Settings
from api.wiring import Services, prepare, wire
from tests.api.conftest import ADMIN_SECRET
from tests.api.tus import announcement, send
from tests.builders.bad_archives import MIB, all_bad
from tests.builders.object_stores import Place
from tests.builders.small_disk import largest_file_bytes

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

Send = Callable[[bytes], Awaitable[httpx.Response]]
KEY = "in/job.zip"


@pytest.fixture
async def services(database_url: str, tmp_path: Path, cos_place: Place) -> Any:
    settings = Settings(
        state_dir=tmp_path, database_url=database_url, admin_token=ADMIN_SECRET, object_endpoints=cos_place.endpoint
    )
    services = wire(settings)
    await prepare(services)
    yield services
    await services.database.close()


@pytest.fixture(params=["form", "tus", "bucket", "ray"])
async def by_path(request: pytest.FixtureRequest, client: httpx.AsyncClient, cos_place: Place) -> Send:
    ways: dict[str, Send] = {
        "form": lambda data: client.post("/packages", files={"file": ("job.zip", data)}),
        "tus": lambda data: _by_tus(client, data),
        "bucket": lambda data: _from_bucket(client, cos_place, data),
        "ray": lambda data: client.put(
            f"{client.base_url.copy_with(path='/')}ray/api/packages/gcs/a.zip", content=data
        ),
    }
    keys = {"secret_id": cos_place.keys.key_id, "secret_key": cos_place.keys.secret_key}
    made = await client.post("/credentials", json={"name": "store", "type": "cos", "data": keys})
    assert made.status_code == 201, made.text
    way: str = request.param
    return ways[way]


async def test_the_same_rules(request: pytest.FixtureRequest, by_path: Send, services: Services) -> None:
    bad = {name: (data, code) for name, data, code in all_bad()}
    if "ray" in request.node.name:  # Ray's client packs an empty working directory, which is nothing bad
        bad = {name: one for name, one in bad.items() if one[1] != "PACKAGE_EMPTY"}
    told = {name: code_of(await by_path(data)) for name, (data, _) in bad.items()}
    assert told == {name: code for name, (_, code) in bad.items()}
    assert await what_is_kept(services) == []


async def test_a_full_disk(by_path: Send, services: Services) -> None:
    with largest_file_bytes(2 * MIB):
        answer = await by_path(b"PK\3\4" + bytes(3 * MIB))
    assert (answer.status_code, code_of(answer)) == (503, "DISK_FULL")
    assert await what_is_kept(services) == []


def code_of(answer: httpx.Response) -> str:
    is_problem = answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["code"]) if is_problem else answer.text.partition(":")[0]


async def what_is_kept(services: Services) -> list[str]:
    blobs = [blob.key async for blob in services.blobs.find("")]
    return blobs + [file.name for file in services.blobs.spool_dir.iterdir()]


async def _by_tus(client: httpx.AsyncClient, data: bytes) -> httpx.Response:
    """In two pieces."""
    made = await client.post("/uploads", headers=announcement(len(data), filename="job.zip"))
    if made.status_code != 201:
        return made
    path, half = made.headers["location"].removeprefix("/api/v1"), len(data) // 2
    first = await send(client, path, 0, data[:half])
    return first if first.is_error else await send(client, path, half, data[half:])


async def _from_bucket(client: httpx.AsyncClient, place: Place, data: bytes) -> httpx.Response:
    place.open().put(KEY, data)
    source = {"type": "cos", "bucket": place.bucket, "key": KEY, "region": "ap-guangzhou", "credential": "store"}
    return await client.post("/packages", json={"source": source | {"endpoint": place.endpoint}})
