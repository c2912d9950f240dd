"""Uploads between real processes, over a wire that breaks: nothing that has come is sent again."""

import asyncio
import io
import os
import re
import signal
import sys
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import httpx
import pytest

from runtime_envs.uploads import UploadLimits
from tests.api.test_process import serving
from tests.api.tus import PIECE, TUS, announcement
from tests.builders.broken_wire import Wire, wire_to
from tests.builders.waiting import wait_until

MIB = 2**20
PART = UploadLimits().part_bytes
SECRET = "mst_token-of-uploads"
CLI = [sys.executable, "-c", "from api.cli.main import main; main()", "package", "upload", "-o", "name"]


def zip_of_mib(size: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("weights", Random(size).randbytes(size * MIB))  # noqa: S311 - only hard to pack
    return out.getvalue()


ZIP = zip_of_mib(40)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.zip"
    path.write_bytes(ZIP)
    return path


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path / "state", MUSTER_ADMIN_TOKEN=SECRET) as (_, address):
        yield address


@pytest.fixture
async def wire(address: str) -> AsyncIterator[Wire]:
    async with wire_to(int(address.rpartition(":")[2])) as wire:
        yield wire


def client_of(address: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {SECRET}"}
    return httpx.Client(base_url=f"{address}/api/v1", headers=headers, trust_env=False, timeout=60)


async def started(wire: Wire, file: Path) -> asyncio.subprocess.Process:
    environment = {"PATH": os.environ["PATH"], "HOME": str(file.parent), "LANG": "C.UTF-8"}
    environment |= {"MUSTER_ADDRESS": wire.endpoint, "MUSTER_TOKEN": SECRET}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*CLI, str(file), env=environment, stdout=pipe, stderr=pipe)


async def told(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    out, error = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), error.decode()


def kept(client: httpx.Client) -> int:
    """Bytes of the one upload that is on its way."""
    return sum(one["offset_bytes"] for one in client.get("/uploads").json()["items"])


async def test_the_command_goes_on_after_each_cut(address: str, wire: Wire, file: Path) -> None:
    wire.ask_cuts = [10 * MIB, 20 * MIB]
    code, package, error = await told(await started(wire, file))
    assert (code, error, wire.broken) == (0, "", 2)
    with client_of(address) as client:
        assert client.get(f"/packages/{package.strip()}/content").content == ZIP
    assert wire.asked_bytes < len(ZIP) + 16 * MIB


async def test_after_ctrl_c_the_same_command_goes_on(address: str, wire: Wire, file: Path) -> None:
    wire.ask_stalls = [PART + 4 * MIB]
    process = await started(wire, file)
    with client_of(address) as client:
        await asyncio.to_thread(wait_until, lambda: kept(client) == PART, 30)
        process.send_signal(signal.SIGINT)
        code, _, error = await told(process)
        assert code == 130
        assert "give the same command again" in error
        wire.ask_stalls, wire.asked_bytes = [], 0
        code, package, error = await told(await started(wire, file))
        assert (code, error) == (0, "")
        assert wire.asked_bytes < len(ZIP) - PART + MIB
        assert client.get(f"/packages/{package.strip()}/content").content == ZIP


async def test_a_package_that_is_there_is_not_sent_again(wire: Wire, file: Path) -> None:
    first = await told(await started(wire, file))
    wire.asked_bytes = 0
    assert await told(await started(wire, file)) == first
    assert wire.asked_bytes < MIB


async def test_too_large_names_the_command_to_use(wire: Wire, tmp_path: Path) -> None:
    file = tmp_path / "large.zip"
    with file.open("wb") as out:
        out.truncate(100 * MIB + 1)
    code, out_text, error = await told(await started(wire, file))
    assert (code, out_text) == (2, "")
    assert "PACKAGE_TOO_LARGE" in error
    assert re.search(r"muster package fetch cos://\S+ --region \S+ --credential \S+", error)
    assert wire.asked_bytes < MIB


def test_the_service_is_killed_in_the_middle(tmp_path: Path) -> None:
    gone = threading.Event()

    def endless() -> Iterator[bytes]:
        yield ZIP[: PART + 4 * MIB]
        gone.wait(60)

    def send(client: httpx.Client, path: str) -> None:
        headers = TUS | PIECE | {"Upload-Offset": "0"}
        with pytest.raises(httpx.TransportError):
            client.patch(path, content=endless(), headers=headers)

    with serving(tmp_path, MUSTER_ADMIN_TOKEN=SECRET) as (process, address), client_of(address) as client:
        made = client.post("/uploads", headers=announcement(len(ZIP), filename="job.zip"))
        path = made.headers["location"].removeprefix("/api/v1")
        sender = threading.Thread(target=send, args=(client_of(address), path))
        sender.start()
        wait_until(lambda: kept(client) == PART, 30)
        process.kill()
        process.wait(20)
        gone.set()
        sender.join()
    with serving(tmp_path, MUSTER_ADMIN_TOKEN=SECRET) as (_, address), client_of(address) as client:
        assert client.get(path).json()["offset_bytes"] == PART
        done = client.patch(path, content=ZIP[PART:], headers=TUS | PIECE | {"Upload-Offset": str(PART)})
        package = done.headers["content-location"].removeprefix("/api/v1")
        assert client.get(f"{package}/content").content == ZIP
