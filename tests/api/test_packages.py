"""Uploads over HTTP: one file, streamed, whatever the client sends around it."""

import io
import zipfile

import httpx
import pytest

from api.wiring import Services
from kernel.actor import Role
from tests.api.conftest import SignIn

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database

BOUNDARY = "frontier"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def zip_of(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.py"), text)
    return out.getvalue()


def part(name: str, data: bytes, file_name: str | None = "job.zip") -> bytes:
    file = f'; filename="{file_name}"' if file_name else ""
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
ZIP = zip_of(main="print(1)")


async def upload(client: httpx.AsyncClient, data: bytes, name: str = "job.zip", **headers: str) -> httpx.Response:
    return await client.post("/packages", files={"file": (name, data)}, headers=headers)


async def test_upload_and_read_back(client: httpx.AsyncClient) -> None:
    answer = await upload(client, ZIP, "作业.zip")
    package = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, f"/api/v1/packages/{package['id']}")
    assert (package["file_name"], package["size_bytes"], package["entries"]) == ("作业.zip", len(ZIP), 1)
    assert (await client.get(f"/packages/{package['id']}")).json() == package
    content = await client.get(f"/packages/{package['id']}/content")
    assert content.content == ZIP
    assert content.headers["content-type"] == "application/zip"
    assert content.headers["content-disposition"] == "attachment; filename*=UTF-8''%E4%BD%9C%E4%B8%9A.zip"
    entries = (await client.get(f"/packages/{package['id']}/entries")).json()["items"]
    assert [entry["name"] for entry in entries] == ["main.py"]


async def test_the_same_bytes_are_the_same_package(client: httpx.AsyncClient) -> None:
    first, second = await upload(client, ZIP), await upload(client, ZIP, "other.zip")
    assert (second.status_code, second.json()) == (200, first.json())


async def test_a_repeated_key_gets_the_first_answer(client: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "up-1"}
    await upload(client, ZIP, **key)
    again = await upload(client, ZIP, **key)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    other = await upload(client, zip_of(other="2"), **key)
    assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_a_dry_run_checks_and_stores_nothing(client: httpx.AsyncClient) -> None:
    form = {"file": ("job.zip", ZIP)}
    assert (await client.post("/packages?dry_run=true", files=form)).status_code == 200
    assert (await client.get("/packages")).json()["items"] == []
    bad = await client.post("/packages?dry_run=true", files={"file": ("job.zip", b"none")})
    assert bad.json()["code"] == "PACKAGE_NOT_ZIP"


async def test_a_dry_run_of_a_deletion(client: httpx.AsyncClient, sign_in: SignIn) -> None:
    address = f"/packages/{(await upload(client, ZIP)).json()['id']}"
    bob = await sign_in(Role.SUBMITTER, "bob")
    assert (await bob.delete(address, params={"dry_run": True})).status_code == 403
    assert (await client.delete(address, params={"dry_run": True})).status_code == 204
    assert (await client.get(f"{address}/content")).content == ZIP


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
async def test_however_the_body_is_cut(client: httpx.AsyncClient, size: int) -> None:
    body = part("file", ZIP) + END

    async def pieces() -> object:
        for start in range(0, len(body), size):
            yield body[start : start + size]

    answer = await client.post("/packages", content=pieces(), headers=FORM)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["size_bytes"]) == (201, len(ZIP))


@pytest.mark.parametrize(
    ("body", "headers", "status", "code", "pointer"),
    [
        (b"{}", {"Content-Type": "application/json"}, 422, "FIELD_REQUIRED", "/source"),
        (b"{", {"Content-Type": "application/json"}, 400, "MALFORMED_JSON", None),
        (b"x", {}, 422, "FIELD_REQUIRED", "/file"),
        (END, FORM, 422, "FIELD_REQUIRED", "/file"),
        (part("text", b"1", None) + END, FORM, 422, "UNKNOWN_FIELD", "/text"),
        (part("file", ZIP) + part("text", b"1", None) + END, FORM, 422, "UNKNOWN_FIELD", "/text"),
        (part("file", ZIP) + part("file", ZIP) + END, FORM, 422, "UNKNOWN_FIELD", "/file"),
        (part("file", ZIP), FORM, 400, "MALFORMED_MULTIPART", None),
        (b"nonsense", FORM, 400, "MALFORMED_MULTIPART", None),
        (part("file", ZIP, "job.tar") + END, FORM, 422, "PACKAGE_NOT_ZIP", None),
        (part("file", b"PK") + END, FORM, 422, "PACKAGE_NOT_ZIP", None),
    ],
)
async def test_bodies_that_are_no_upload(  # noqa: PLR0917 - columns of the table above
    client: httpx.AsyncClient, body: bytes, headers: dict[str, str], status: int, code: str, pointer: str | None
) -> None:
    answer = await client.post("/packages", content=body, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert pointer in (None, *(error["pointer"] for error in problem["errors"]))
    assert (await client.get("/packages")).json()["items"] == []


async def test_too_large_is_refused_while_it_comes(client: httpx.AsyncClient, services: Services) -> None:
    sent = 0

    async def endless() -> object:
        nonlocal sent
        yield part("file", b"PK\x03\x04")[:-2]
        while True:
            sent += 2**20
            yield bytes(2**20)

    answer = await client.post("/packages", content=endless(), headers=FORM)  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["code"]) == (413, "PACKAGE_TOO_LARGE")
    assert sent <= 102 * 2**20
    assert list(services.blobs.spool_dir.iterdir()) == []


async def test_who_may_do_what(client: httpx.AsyncClient, sign_in: SignIn) -> None:
    viewer, ann, bob = (
        await sign_in(Role.VIEWER),
        await sign_in(Role.SUBMITTER, "ann"),
        await sign_in(Role.SUBMITTER, "bob"),
    )
    assert (await upload(viewer, ZIP)).status_code == 403
    package = (await upload(ann, ZIP)).json()
    assert (await viewer.get(f"/packages/{package['id']}/content")).status_code == 200
    assert (await bob.delete(f"/packages/{package['id']}")).json()["code"] == "NOT_YOURS"
    assert (await ann.delete(f"/packages/{package['id']}")).status_code == 204
    assert (await ann.get(f"/packages/{package['id']}")).status_code == 404


async def test_lists_are_filtered_and_paged(client: httpx.AsyncClient) -> None:
    made = [(await upload(client, zip_of(main=str(number)), f"p{number}.zip")).json()["id"] for number in range(3)]
    page = (await client.get("/packages?limit=2")).json()
    rest = (await client.get(f"/packages?limit=2&cursor={page['next_cursor']}")).json()
    assert [one["id"] for one in page["items"] + rest["items"]] == made[::-1]
    assert rest["next_cursor"] is None
    named = (await client.get("/packages?file_name=p1.zip")).json()["items"]
    assert [one["id"] for one in named] == made[1:2]
    assert (await client.get("/packages?sort=sha256")).json()["code"] == "INVALID_SORT"
