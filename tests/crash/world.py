"""A state folder with a running cluster, the servers that live and die on it, and the runs that must survive them.

A server is a process forked from one that has everything imported, so that a life costs no second of start. It runs
the very `serve` of `muster serve`, told to kill itself at a point.
"""

import asyncio
import io
import multiprocessing
import os
import signal
import socket
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from api.main import serve
from api.settings import Settings
from api.wiring import wire
from cluster_groups.backends.local_state import StateFolder
from kernel.actor import Actor, Role
from kernel.loop import Step
from tests.builders.leftovers import end_leftovers
from tests.builders.waiting import wait_until
from tests.crash.points import Point

CLUSTER = "shared"
READY_TIMEOUT_S = 60
UP_TIMEOUT_S = 120
END_TIMEOUT_S = 60
_TOKEN = "token-of-the-crash-test"
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["api.main", "tests.crash.points"])


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        at_once: dict[str, Any] = {"retry_backoff_min_s": 0, "retry_backoff_max_s": 0}
        self.settings = Settings(
            state_dir=folder / "state", port=_free_port(), admin_token=SecretStr(_TOKEN), **at_once
        )
        self.api = httpx.Client(
            base_url=f"http://127.0.0.1:{self.settings.port}/api/v1",
            headers={"Authorization": f"Bearer {_TOKEN}"},
            timeout=30,
            trust_env=False,
        )
        self.cluster_id = self.package = ""
        self.settled: set[str] = set()
        """Attempts of former cases, whose last steps may still come, and kill nobody."""
        self._server: BaseProcess | None = None

    def serve(self, point: Point | None = None) -> None:
        """Start a server, to die at the point; it may meet that before it is ready."""
        self.kill()
        observer = _Executioner(point, frozenset(self.settled))
        self._server = _forks.Process(target=_live, args=(self.settings, observer, self.folder / "server.log"))
        self._server.start()
        wait_until(lambda: self.is_dead or self._is_ready(), READY_TIMEOUT_S, self.last_words)
        assert point is not None or not self.is_dead, self.last_words()

    def serve_on(self) -> None:
        """With the server of the case before, which has no point to die at."""
        if self.is_dead:
            self.serve()

    def is_up(self) -> bool:
        """The shared cluster."""
        return bool(self.get(f"/clusters/{CLUSTER}")["health"]["status"] == "HEALTHY")

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.join()
            self._server.close()
            self._server = None

    @property
    def is_dead(self) -> bool:
        return self._server is None or self._server.exitcode is not None

    def wait_died(self) -> None:
        """By its own hand, at the point."""
        wait_until(lambda: self.is_dead, END_TIMEOUT_S, self.last_words)
        assert self._server is not None
        assert self._server.exitcode == -signal.SIGKILL, self.last_words()

    def last_words(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-3000:]

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        return _ok(self.api.get(path, params=query))

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        return _ok(self.api.post(path, json=body))

    def send(self, method: str, path: str) -> None:
        """To a server that may die of it before it answers."""
        with suppress(httpx.TransportError):
            _ok(self.api.request(method, path))

    def peek(self, path: str, **query: Any) -> dict[str, Any]:
        """Nothing, when the server dies meanwhile."""
        try:
            return self.get(path, **query)
        except httpx.TransportError:
            return {}

    def create_cluster(self, name: str) -> str:
        nodes = {"head": {"cpu": 1, "memory_gib": 4}, "worker_groups": [{"name": "w", "cpu": 1, "memory_gib": 2}]}
        return str(self.post("/clusters", name=name, kind="managed", **nodes)["id"])

    def upload(self, content: str) -> str:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("main.py", content)
        answer = self.api.post("/packages", files={"file": ("main.zip", packed.getvalue())})
        return str(_ok(answer)["id"])

    def lose_newest_package(self) -> None:
        blobs = (self.settings.state_dir / "blobs" / "packages").rglob("*.zip")
        max(blobs, key=lambda blob: blob.stat().st_mtime_ns).unlink()

    def run_of(self, job: str) -> str:
        ((run_id,),) = self.stored("SELECT id FROM runs WHERE job_name = ?", job)
        return str(run_id)

    @property
    def submissions(self) -> set[str]:
        """All that a server ever meant to send."""
        return {str(attempt_id) for (attempt_id,) in self.stored("SELECT id FROM attempts")}

    def unsettled(self) -> list[Any]:
        return self.stored("SELECT id, state FROM attempts WHERE state <> 'ENDED'")

    def stop_without_server(self, run_id: str) -> None:
        """The stop is stored, and the server that took it is gone before any of its loops saw it."""
        assert self.is_dead
        asyncio.run(_stop(self.settings, run_id))

    def on_ray(self) -> dict[str, str]:
        """What the shared cluster itself knows, past any server: submission ids and their states."""
        cluster = StateFolder(self.settings.state_dir / "local").load(self.cluster_id)
        assert cluster is not None
        headers = {"Authorization": f"Bearer {cluster.endpoint.token}"}
        answer = httpx.get(f"{cluster.endpoint.address}/api/jobs/", headers=headers, trust_env=False)
        return {job["submission_id"]: job["status"] for job in answer.raise_for_status().json()}

    def stored(self, query: str, *values: str) -> list[Any]:
        """Read past any server, as there may be none."""
        with closing(sqlite3.connect(self.settings.state_dir / "muster.db")) as database:
            return database.execute(query, values).fetchall()

    def _is_ready(self) -> bool:
        try:
            return bool(self.api.get(f"http://127.0.0.1:{self.settings.port}/readyz").is_success)
        except httpx.TransportError:
            return False


@contextmanager
def a_world(folder: Path) -> Iterator[World]:
    world = World(folder)
    try:
        world.serve()
        world.cluster_id = world.create_cluster(CLUSTER)
        world.post(f"/clusters/{CLUSTER}/start")
        wait_until(world.is_up, UP_TIMEOUT_S, world.last_words)
        world.package = world.upload("")
        yield world
    finally:
        world.kill()
        world.api.close()
        end_leftovers(world.settings.state_dir)


@dataclass(frozen=True, slots=True)
class _Executioner:
    point: Point | None
    spared: frozenset[str]

    def __call__(self, step: Step) -> None:
        if self.point is not None and step.key not in self.spared and self.point.is_met(step):
            os.kill(os.getpid(), signal.SIGKILL)


def _live(settings: Settings, observer: _Executioner, log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    serve(settings, observer)


async def _stop(settings: Settings, run_id: str) -> None:
    services = wire(settings)
    async with services.database.write() as session:
        await services.runs.stop(session, Actor(user="ann", role=Role.ADMIN), run_id)
    await services.http.aclose()
    await services.database.close()


def _ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.is_success, answer.text
    return dict(answer.json()) if answer.content else {}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
