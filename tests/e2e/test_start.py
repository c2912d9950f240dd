"""What hinders the service is told in one line and a hint, with an exit code that is not 0."""

import socket
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.e2e.support import MUSTER, Service, running

ON_SMALL_DISK = 'mount -t tmpfs -o size={size} tmpfs "$MUSTER_STATE_DIR" && exec "{muster}" serve'


def on_small_disk(size: str) -> list[str]:
    """A command that serves from a file system of its own; skips where the kernel lets only root have one."""
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run(
        [*own_mounts, "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, check=False
    ).returncode:
        pytest.skip("this kernel lets only root mount a small disk")
    return [*own_mounts, "sh", "-c", ON_SMALL_DISK.format(size=size, muster=MUSTER)]


def refusal(home: Path, command: list[str] | None = None, **variables: str) -> str:
    """The code that `muster serve` gives for not starting."""
    (home / "state").mkdir(mode=0o700, exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "MUSTER_STATE_DIR": str(home / "state"), **variables}
    done = subprocess.run(
        command or [str(MUSTER), "serve"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 5, done
    error, *more = done.stderr.splitlines()
    assert len(more) <= 1, done.stderr
    assert all(line.startswith("hint: ") for line in more)
    mark, code, _ = error.split(": ", 2)
    assert mark == "error"
    return code


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert refusal(tmp_path, MUSTER_PORT=str(other.getsockname()[1])) == "CANNOT_LISTEN"


def test_an_unreachable_database(tmp_path: Path) -> None:
    url = "postgresql://muster:secret@127.0.0.1:9/muster"
    assert refusal(tmp_path, MUSTER_PORT="0", MUSTER_DATABASE_URL=url) == "DATABASE_UNREACHABLE"


def test_a_state_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refusal(tmp_path, MUSTER_STATE_DIR=str(tmp_path / "file")) == "STATE_DIR_UNUSABLE"


def test_a_full_disk(tmp_path: Path) -> None:
    assert refusal(tmp_path, on_small_disk("64k"), MUSTER_PORT="0") == "DISK_FULL"


def test_a_disk_that_is_full_later(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    large = tmp_path / "large"
    large.mkdir()
    (large / "weights").write_bytes(Random(1).randbytes(16 * 2**20))  # noqa: S311 - no secret, only hard to pack
    token = "token-of-a-small-disk"
    with running(Service(tmp_path, on_small_disk("8m"), MUSTER_ADMIN_TOKEN=token, MUSTER_TOKEN=token)) as service:
        said = service.muster("package", "upload", large)
        assert said.code == 5
        assert "error: DISK_FULL: " in said.err
        assert service.items("package", "list") == []
