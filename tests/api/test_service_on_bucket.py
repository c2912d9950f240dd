"""The service with its packages in a bucket, and what it says when it cannot have that."""

from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.settings import Settings
from api.wiring import close, prepare, wire
from kernel.errors import Unavailable
from runtime_envs.packages.bucket import BucketType
from tests.api.conftest import ADMIN_SECRET
from tests.api.test_object_packages import zip_of
from tests.builders.object_stores import Place

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database


def settings_for(place: Place, folder: Path, database_url: str, **changes: str) -> Settings:
    given = {
        "blob_region": "ap-guangzhou" if place.type is BucketType.COS else None,
        "blob_endpoint": place.endpoint,
        "blob_key_id": place.keys.key_id,
        "blob_secret_key": place.keys.secret_key,
        "blob_store": f"{place.type}://{place.bucket}/{folder.name}",
    }
    return Settings(state_dir=folder, database_url=database_url, admin_token=ADMIN_SECRET, **(given | changes))


async def test_packages_live_there(place: Place, tmp_path: Path, database_url: str) -> None:
    services = wire(settings_for(place, tmp_path, database_url))
    await prepare(services)
    transport = httpx.ASGITransport(app=create_app(services))
    headers = {"Authorization": f"Bearer {ADMIN_SECRET}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://muster", headers=headers) as client:
        package = (await client.post("/api/v1/packages", files={"file": ("a.zip", zip_of())})).json()
        content = await client.get(f"/api/v1/packages/{package['id']}/content")
        checks = (await client.get("/readyz")).json()["checks"]
    assert content.content == zip_of()
    assert next(check["ok"] for check in checks if check["name"] == "blob store")
    kept, _ = place.open().listed(f"{tmp_path.name}/packages/", "", 9)
    assert len(kept) == 2
    assert not (tmp_path / "blobs").exists()
    await close(services)


async def test_a_start_that_cannot_succeed_says_why(place: Place, tmp_path: Path, database_url: str) -> None:
    services = wire(settings_for(place, tmp_path, database_url, blob_secret_key="wrong"))
    with pytest.raises(Unavailable, match="BLOB_STORE_DENIED"):
        await prepare(services)


def test_no_secret_is_shown(place: Place, tmp_path: Path, database_url: str) -> None:
    assert place.keys.secret_key not in repr(settings_for(place, tmp_path, database_url))
