"""Volumes over HTTP, and mounts of jobs and clusters."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.settings import Settings
from api.wiring import close, prepare, wire
from kernel.actor import Role
from tests.api.conftest import ADMIN_SECRET, SignIn
from tests.builders.archive_bytes import Raw, build

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

NFS = {"name": "data", "type": "nfs", "source": {"server": "nfs.example", "path": "/export"}}
BUCKET = {"name": "sets", "type": "s3", "source": {"bucket": "sets", "region": "eu-west-1"}, "credential": "keys"}
KEYS = {"name": "keys", "type": "s3", "data": {"access_key_id": "i", "secret_access_key": "k"}}
NODES = {"head": {"cpu": 1, "memory_gib": 2}, "worker_groups": [{"name": "w", "cpu": 1, "memory_gib": 2}]}
MOUNT = {"volume": "data", "mount_path": "/mnt/muster/data", "sub_path": "", "read_only": False}


async def make(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_made_shown_listed_and_deleted(client: httpx.AsyncClient) -> None:
    await make(client, "/credentials", KEYS)
    made = await make(client, "/volumes", BUCKET)
    assert made["id"].startswith("vol_")
    assert made["source"] == {"bucket": "sets", "region": "eu-west-1", "path": "/"}
    other = await make(client, "/volumes", NFS)
    for ref in ("sets", made["id"]):
        assert (await client.get(f"/volumes/{ref}")).json() == made
    assert (await client.get("/volumes?sort=name")).json()["items"] == [other, made]
    assert (await client.get("/volumes?type=s3")).json()["items"] == [made]
    refused = await client.delete("/credentials/keys")
    assert (refused.status_code, refused.json()["params"]["users"]) == (409, ["sets"])
    assert (await client.delete("/volumes/sets")).status_code == 204
    assert (await client.get("/volumes/sets")).status_code == 404
    assert (await client.delete("/credentials/keys")).status_code == 204
    audit = (await client.get("/audit", params={"target": "sets"})).json()["items"]
    assert [(one["action"], one["target_type"]) for one in audit] == [("delete", "volume"), ("create", "volume")]


async def test_a_dry_run_stores_nothing(client: httpx.AsyncClient) -> None:
    assert (await client.post("/volumes?dry_run=true", json=NFS)).status_code == 200
    assert (await client.get("/volumes")).json()["items"] == []


async def test_never_edited(client: httpx.AsyncClient) -> None:
    await make(client, "/volumes", NFS)
    assert (await client.patch("/volumes/data", json={"source": {}})).status_code == 405


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"name": "Data"}, "INVALID_NAME", "/name"),
        ({"type": "ftp"}, "INVALID_VALUE", "/type"),
        ({"source": {"server": 7}}, "INVALID_TYPE", "/source/server"),
        ({"source": {}}, "FIELD_REQUIRED", "/source/server"),
        ({"source": {"server": "nfs.example; reboot"}}, "INVALID_VALUE", "/source/server"),
        ({"source": {"server": "localhost"}}, "ADDRESS_NOT_ALLOWED", "/source/server"),
        ({"source": {"server": "a", "mounter": "x"}}, "UNKNOWN_FIELD", "/source/mounter"),
        ({"credential": "keys"}, "FIELD_NOT_FOR_TYPE", "/credential"),
        (BUCKET | {"credential": "none"}, "REFERENCE_NOT_FOUND", "/credential"),
        (
            BUCKET | {"type": "cos", "source": {"bucket": "a-1250000000", "region": "r"}},
            "REFERENCE_NOT_FOUND",
            "/credential",
        ),
        ({"size": 1}, "UNKNOWN_FIELD", "/size"),
    ],
)
async def test_refused(client: httpx.AsyncClient, body: dict[str, Any], code: str, pointer: str) -> None:
    await make(client, "/credentials", KEYS)
    answer = (await client.post("/volumes", json=NFS | body)).json()
    assert (answer["status"], answer["code"], answer["errors"][0]["pointer"]) == (422, code, pointer), answer


async def test_a_taken_name(client: httpx.AsyncClient) -> None:
    await make(client, "/volumes", NFS)
    assert (await client.post("/volumes", json=NFS)).json()["code"] == "NAME_TAKEN"


async def test_who_may(client: httpx.AsyncClient, sign_in: SignIn) -> None:
    await make(client, "/volumes", NFS)
    submitter = await sign_in(Role.SUBMITTER)
    assert (await submitter.get("/volumes/data")).status_code == 200
    assert (await submitter.post("/volumes", json=NFS | {"name": "more"})).status_code == 403
    assert (await submitter.delete("/volumes/data")).status_code == 403
    operator = await sign_in(Role.OPERATOR)
    assert (await operator.delete("/volumes/data")).status_code == 204


async def test_mounts_of_jobs_and_clusters(client: httpx.AsyncClient) -> None:
    """A30: a job on a cluster shows the cluster's volumes, and what both need cannot be deleted."""
    await make(client, "/volumes", NFS)
    given = {"volume": "data", "mount_path": "/mnt/muster/data"}
    cluster = await make(client, "/clusters", {"name": "lab", **NODES, "volumes": [given]})
    assert cluster["volumes"] == [MOUNT]
    package = await _package(client)
    body = {"name": "j", "run_mode": "cluster", "cluster": "lab", "package": package, "entrypoint": "true"}
    job = await make(client, "/jobs", body | {"mounts": [given]})
    assert job["mounts"] == [MOUNT]
    shown = (await client.get("/jobs/j")).json()
    assert shown["inherited"]["clusters"][0]["volumes"] == [MOUNT]
    refused = (await client.delete("/volumes/data")).json()
    assert (refused["code"], refused["params"]["users"]) == ("VOLUME_IN_USE", ["j", "lab"])
    elsewhere = {"volume": "data", "mount_path": "/data"}
    answer = (await client.post("/jobs", json=body | {"name": "k", "mounts": [elsewhere]})).json()
    assert (answer["code"], answer["errors"][0]["pointer"]) == ("MOUNT_PATH_NOT_AVAILABLE", "/mounts/0/mount_path")
    assert "/mnt/muster" in answer["detail"]


@pytest.mark.parametrize(
    ("settings", "is_allowed"),
    [
        ({}, True),
        ({"host": "::1"}, True),
        ({"host": "localhost"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "0.0.0.0", "local_volume_roots": "/srv /data"}, True),
        ({"local_volume_roots": "/srv"}, False),
    ],
)
async def test_folders_of_local_volumes(
    database_url: str, tmp_path: Path, settings: dict[str, Any], is_allowed: bool
) -> None:
    services = wire(Settings(state_dir=tmp_path, database_url=database_url, admin_token=ADMIN_SECRET, **settings))
    await prepare(services)
    transport = httpx.ASGITransport(app=create_app(services))
    headers = {"Authorization": f"Bearer {ADMIN_SECRET}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://muster/api/v1", headers=headers) as client:
        body = {"name": "here", "type": "local", "source": {"path": "/data/sets"}}
        answer = await client.post("/volumes", json=body)
    await close(services)
    expected = (201, None) if is_allowed else (422, "LOCAL_VOLUME_NOT_ALLOWED")
    assert (answer.status_code, answer.json().get("code")) == expected


async def _package(client: httpx.AsyncClient) -> str:
    answer = await client.post("/packages", files={"file": ("p.zip", build(Raw(name=b"main.py")))})
    identity: str = answer.json()["id"]
    return identity
