"""Who gets in at the Ray Jobs endpoint, and what is sent there before a submission."""

import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from packaging.version import Version

from tests.api.ray_world import MAX_UPLOAD_BYTES, RayWorld, ray_world

PACKAGE = "/api/packages/gcs/_ray_pkg_0123456789abcdef.zip"


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[RayWorld]:
    async with ray_world(database_url, tmp_path) as world:
        yield world


@pytest.fixture
async def ann(world: RayWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client


def a_zip(text: str = "print(1)") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("main.py", text)
    return packed.getvalue()


class TestToken:
    async def test_without_a_valid_one_the_first_words_say_what_to_set(self, world: RayWorld) -> None:
        for authorization in ("", "Bearer wrong", "Basic eDp5"):
            async with world.client(Authorization=authorization) as client:
                for answer in (await client.get("/api/version"), await client.post("/api/jobs/", json={})):
                    assert answer.status_code == 401
                    assert "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in answer.text.splitlines()[0]

    async def test_in_the_second_header_ray_looks_at(self, world: RayWorld) -> None:
        token = f"Bearer {world.secrets['ann']}"
        async with world.client(**{"Authorization": "", "X-Ray-Authorization": token}) as client:
            assert (await client.get("/api/version")).status_code == 200

    async def test_a_viewer_looks_and_changes_nothing(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        await ann.post("/api/jobs/", json={"entrypoint": "x", "submission_id": "s1"})
        async with world.client("eve") as eve:
            assert (await eve.get("/api/jobs/s1")).status_code == 200
            for refused in (
                await eve.post("/api/jobs/", json={"entrypoint": "x"}),
                await eve.put(PACKAGE, content=a_zip()),
                await eve.post("/api/jobs/s1/stop"),
                await eve.delete("/api/jobs/s1"),
            ):
                assert refused.status_code == 400  # of 403 Ray's client makes advice about tokens
                assert "Ask an administrator for a token with the role submitter" in refused.text.splitlines()[0]


class TestBrowsers:
    async def test_they_change_nothing(self, ann: httpx.AsyncClient) -> None:
        for header in ("Origin", "Referer", "Sec-Fetch-Site", "Access-Control-Request-Method"):
            marked = {header: "http://evil.example"}
            for answer in (
                await ann.post("/api/jobs/", json={"entrypoint": "x"}, headers=marked),
                await ann.put(PACKAGE, content=a_zip(), headers=marked),
                await ann.delete("/api/jobs/s1", headers=marked),
            ):
                assert answer.status_code == 405
                assert answer.text.endswith("method not allowed for browser traffic.")
        assert (await ann.get("/api/jobs/")).json() == []

    async def test_they_see_no_values_of_variables(self, ann: httpx.AsyncClient) -> None:
        env = {"env_vars": {"KEY": "secret"}}
        await ann.post("/api/jobs/", json={"entrypoint": "x", "submission_id": "s1", "runtime_env": env})
        agent = {"User-Agent": "Mozilla/5.0"}
        (listed,) = (await ann.get("/api/jobs/", headers=agent)).json()
        assert listed["runtime_env"] == {"env_vars": {"KEY": "<redacted>"}}
        assert (await ann.get("/api/jobs/s1")).json()["runtime_env"] == env


class TestAddress:
    @pytest.mark.parametrize("address", ["/ray/nonsense/c1", "/ray/clusters", "/ray/clusters/c1/more"])
    async def test_one_that_is_none_names_those_that_are(self, world: RayWorld, address: str) -> None:
        async with world.client(address=address) as ann:
            assert (await ann.get("/api/version")).status_code == 200  # else the client speaks of a Ray that is too old
            for answer in (await ann.get("/api/jobs/"), await ann.post("/api/jobs/", json={"entrypoint": "x"})):
                assert answer.status_code == 404
                first = answer.text.splitlines()[0]
                assert "/ray, /ray/clusters/<name>, /ray/groups/<name> or /ray/jobs/<name>" in first

    async def test_methods_it_does_not_take(self, ann: httpx.AsyncClient) -> None:
        answer = await ann.put("/api/jobs/")
        assert (answer.status_code, sorted(answer.headers["allow"].split(", "))) == (405, ["GET", "HEAD", "POST"])


class TestVersion:
    async def test_what_the_client_compares(self, ann: httpx.AsyncClient) -> None:
        told = (await ann.get("/api/version")).json()
        assert Version(told["ray_version"]) >= Version("2.54")
        assert int(told["version"]) == 4
        assert all(isinstance(told[name], str) for name in ("version", "ray_version", "ray_commit", "session_name"))


class TestPackages:
    async def test_absent_then_present_for_its_sender_only(self, world: RayWorld, ann: httpx.AsyncClient) -> None:
        assert (await ann.get(PACKAGE)).status_code == 404
        assert (await ann.put(PACKAGE, content=a_zip())).status_code == 200
        assert (await ann.get(PACKAGE)).status_code == 200
        async with world.client("bob") as bob:
            assert (await bob.get(PACKAGE)).status_code == 404
            stolen = {"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"}
            refused = await bob.post("/api/jobs/", json={"entrypoint": "x", "runtime_env": stolen})
            assert refused.text.startswith("RAY_UPLOAD_MISSING")
        kept = await ann.post("/api/jobs/", json={"entrypoint": "x", "runtime_env": stolen})
        assert kept.status_code == 200, kept.text

    async def test_the_largest_one_fits(self, ann: httpx.AsyncClient) -> None:
        around = len(a_zip(""))
        data = a_zip("x" * (MAX_UPLOAD_BYTES - around))
        assert len(data) == MAX_UPLOAD_BYTES
        assert (await ann.put(PACKAGE, content=data)).status_code == 200

    async def test_one_byte_more_is_read_to_its_end_and_refused(self, ann: httpx.AsyncClient) -> None:
        sent = 0

        async def body() -> AsyncIterator[bytes]:
            nonlocal sent
            for _ in range(16):
                sent += MAX_UPLOAD_BYTES // 8
                yield b"x" * (MAX_UPLOAD_BYTES // 8)

        answer = await ann.put(PACKAGE, content=body())
        assert answer.status_code == 413
        assert answer.text.startswith("PACKAGE_TOO_LARGE")
        assert sent == 2 * MAX_UPLOAD_BYTES

    async def test_what_is_not_taken(self, ann: httpx.AsyncClient) -> None:
        for path, content, said in (
            ("/api/packages/s3/x.zip", a_zip(), "RAY_PROTOCOL_UNKNOWN"),
            ("/api/packages/gcs/x.exe", a_zip(), "RAY_UPLOAD_NAME_INVALID"),
            (PACKAGE, b"no zip", "PACKAGE_NOT_ZIP"),
        ):
            answer = await ann.put(path, content=content)
            assert answer.status_code == 400
            assert answer.text.startswith(said)
