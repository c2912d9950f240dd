"""The service as a process: how it starts, how it says that it cannot, how it stops."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


def start(state_dir: Path, **settings: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "MUSTER_STATE_DIR": str(state_dir), "MUSTER_PORT": "0", **settings}
    command = [sys.executable, "-m", "api.main"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def serving(state_dir: Path, **settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its address once it has told it."""
    with start(state_dir, **settings) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            address = re.search(r"http://\S+", first)
            assert address, first + (process.communicate()[1] if process.poll() is not None else "")
            yield process, address[0]
        finally:
            process.kill()


def stop(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    return process.wait(STOP_TIMEOUT_S)


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    with serving(folder) as (process, _):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert stop(process, signal.SIGTERM) == 0
        assert process.stderr is not None


def test_the_first_start_tells_the_admin_token(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "state"
    with serving(folder) as (process, address):
        assert process.stdout is not None
        secret = process.stdout.readline().split()[-1]
        me = httpx.get(f"{address}/api/v1/whoami", headers={"Authorization": f"Bearer {secret}"}, trust_env=False)
        assert me.json()["role"] == "admin"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "admin-token").read_text().strip() == secret
        assert stop(process, signal.SIGTERM) == 0
    with serving(folder) as (process, _):
        assert stop(process, signal.SIGINT) == 0
        assert process.stdout is not None
        assert "Admin token" not in process.stdout.read()


def test_it_stops_with_a_stream_open(tmp_path: Path) -> None:
    secret = "a-token-of-my-own"
    with serving(tmp_path, MUSTER_ADMIN_TOKEN=secret) as (process, address):
        headers = {"Authorization": f"Bearer {secret}"}
        with httpx.stream("GET", f"{address}/api/v1/runs/stream", headers=headers, trust_env=False) as stream:
            assert stream.status_code == 200
            assert stop(process, signal.SIGTERM) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""  # who set the token needs not be told it


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = refused(tmp_path, MUSTER_PORT=str(port))
    assert error.startswith(f"Cannot listen on 127.0.0.1:{port}:")


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    error = refused(tmp_path, MUSTER_DATABASE_URL="postgresql://muster:secret@127.0.0.1:1/muster")
    assert error.startswith("The database does not answer:")
    assert "secret" not in error


def test_a_state_folder_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert refused(file).startswith(f"Cannot use the state folder {file}:")


def test_a_setting_that_is_none(tmp_path: Path) -> None:
    assert refused(tmp_path, MUSTER_PROT="80").startswith(
        "MUSTER_PROT: there is no such setting. The nearest is MUSTER_PORT;"
    )
    (tmp_path / "muster.toml").write_text("prot = 80")
    told = refused(tmp_path)
    assert told.startswith(f"{tmp_path / 'muster.toml'}, prot: there is no such setting. The nearest is port;")


def test_an_admin_token_that_is_easily_guessed(tmp_path: Path) -> None:
    error = refused(tmp_path, MUSTER_ADMIN_TOKEN="geheim")
    assert error.startswith("MUSTER_ADMIN_TOKEN: a secret needs at least 16 ")
    assert "geheim" not in error


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_postgresql_without_the_database(tmp_path: Path, database_url: str) -> None:
    error = refused(tmp_path, MUSTER_DATABASE_URL=f"{database_url}_missing")
    assert "does not exist" in error


def refused(state_dir: Path, **settings: str) -> str:
    """What a start says that fails: one line, exit code 1."""
    with start(state_dir, **settings) as process:
        _, error = process.communicate(timeout=START_TIMEOUT_S)
    assert (process.returncode, error.count("\n")) == (1, 1), error
    return error
