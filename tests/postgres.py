"""A private PostgreSQL for one test session: made by initdb in a folder of its own, on loopback, gone afterwards."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
OPTIONS = ["max_connections=300", "shared_buffers=64MB"]
FAST = ["fsync=off", "synchronous_commit=off", "full_page_writes=off"]


def find_initdb() -> Path | None:
    on_path = shutil.which("initdb")
    places = [Path(on_path)] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    return places[0].resolve() if places else None


@contextmanager
def postgres_server(initdb: Path, *, fast: bool = True) -> Iterator[str]:
    """Gives the server's address, to which a database's name is appended. `fast`: what it says is not durable."""
    account = _account()
    with ExitStack() as ending:
        folder = Path(tempfile.mkdtemp(prefix="muster-pg-"))
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        if account is not None:
            shutil.chown(folder, account)
        log = ending.enter_context((folder / "server.log").open("wb"))
        create = [initdb, "-D", "data", "-U", "muster", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        environment = {"PATH": os.environ["PATH"]}
        subprocess.run(create, user=account, cwd=folder, stdout=log, stderr=log, env=environment, check=True)
        port = _free_port()
        options = [part for option in (*OPTIONS, *(FAST if fast else ())) for part in ("-c", option)]
        command = [initdb.with_name("postgres"), "-D", "data", "-h", "127.0.0.1", "-p", str(port), "-k", "", *options]
        server = subprocess.Popen(command, user=account, cwd=folder, stdout=log, stderr=log, env=environment)
        ending.callback(_stop, server)
        _wait_until_up(server, port, folder / "server.log")
        yield f"postgresql://muster@127.0.0.1:{port}/"


def _account() -> str | None:
    """Whom to run it as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _wait_until_up(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while b"ready to accept connections" not in log.read_bytes() or not _answers(port):
        is_late = time.monotonic() > deadline
        assert server.poll() is None, log.read_text(errors="replace")
        assert not is_late, log.read_text(errors="replace")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGQUIT)  # at once: there is nothing to keep
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
