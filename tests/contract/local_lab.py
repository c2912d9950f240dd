"""Local Ray clusters for tests: made through the backend itself, and gone when the test is over, however it ends."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from cluster_groups.backends.local import LocalBackend
from cluster_groups.backends.local_command import LocalSettings
from cluster_groups.model.cluster import ClusterSpec, Endpoint, NodeSpec, Observed, Phase, WorkerGroup
from cluster_groups.probe import HttpClusterProbe
from kernel.clock import SystemClock

UP_TIMEOUT_S = 90
STOP_TIMEOUT_S = 20


def small_spec(cluster_id: str, *groups: WorkerGroup, **head: Any) -> ClusterSpec:
    return ClusterSpec(id=cluster_id, name=cluster_id, head=NodeSpec(memory_gib=1, **head), worker_groups=groups)


def small_group(name: str = "w", **fields: Any) -> WorkerGroup:
    return WorkerGroup(**{"name": name, "cpu": 1, "memory_gib": 1, **fields})


class Lab:
    def __init__(self, root: Path, http: httpx.AsyncClient) -> None:
        self.root = root
        self.http = http
        self.probe = HttpClusterProbe(http, SystemClock())

    def backend(self, **settings: Any) -> LocalBackend:
        """A new object each time, as after a restart of the service."""
        return LocalBackend(self.root, self.probe, LocalSettings(environment=os.environ, **settings))

    def state(self, cluster_id: str) -> dict[str, Any]:
        return dict(json.loads((self.root / f"{cluster_id}.json").read_text()))

    def pid(self, cluster_id: str, node: str) -> int:
        return next(int(row["pid"]) for row in self.state(cluster_id)["nodes"] if row["name"] == node)

    async def end_of_job(
        self, endpoint: Endpoint, submission_id: str, entrypoint: str, **runtime_env: Any
    ) -> dict[str, Any]:
        """What Ray says of it when it is over, however it ended."""
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        job = {"submission_id": submission_id, "entrypoint": entrypoint, "runtime_env": runtime_env}
        posted = await self.http.post(f"{endpoint.address}/api/jobs/", json=job, headers=headers, timeout=30)
        assert posted.status_code == 200, posted.text

        async def ended() -> dict[str, Any] | None:
            info = (await self.http.get(f"{endpoint.address}/api/jobs/{submission_id}", headers=headers)).json()
            return info if info["status"] in {"SUCCEEDED", "FAILED", "STOPPED"} else None

        return dict(await until(ended, 60))

    async def run_job(self, endpoint: Endpoint, submission_id: str, entrypoint: str, **runtime_env: Any) -> str:
        """Run it to its end through Ray's own Jobs API; answers its log, as the node that ran it serves it."""
        info = await self.end_of_job(endpoint, submission_id, entrypoint, **runtime_env)
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        assert info["status"] == "SUCCEEDED", info
        url = f"{info['driver_agent_http_address']}/logs/job-driver-{submission_id}.log"
        return (await self.http.get(url, headers=headers)).text


async def until(ask: Callable[[], Awaitable[Any]], timeout_s: float) -> Any:
    """The first answer that is true, or an error that tells the last one."""
    deadline = time.monotonic() + timeout_s
    while not (answer := await ask()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {answer}"
        await asyncio.sleep(0.1)
    return answer


async def bring_up(backend: LocalBackend, spec: ClusterSpec) -> Observed:
    """As the reconciler does: start again at every look, until all nodes are there."""

    async def look() -> Observed | None:
        await backend.start(spec)
        seen = await backend.observe(spec.id)
        assert seen.phase in {Phase.STARTING, Phase.UP}, seen
        return seen if seen.phase is Phase.UP and seen.nodes_up == seen.nodes_wanted else None

    observed = await until(look, UP_TIMEOUT_S)
    assert isinstance(observed, Observed)
    return observed


async def take_down(backend: LocalBackend, cluster_id: str) -> None:
    async def look() -> bool:
        await backend.stop(cluster_id)
        return (await backend.observe(cluster_id)).phase is Phase.ABSENT

    await until(look, STOP_TIMEOUT_S)


def processes_of(folder: str) -> list[psutil.Process]:
    """Whatever runs with this cluster's token, wherever it hides."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("RAY_AUTH_TOKEN_PATH", "").startswith(folder):
                found.append(process)
    return found


def nothing_left_of(folder: str) -> bool:
    return not processes_of(folder) and not Path(folder).exists()


@asynccontextmanager
async def local_lab(root: Path) -> AsyncIterator[Lab]:
    async with httpx.AsyncClient(trust_env=False) as http:
        lab = Lab(root, http)
        try:
            yield lab
        finally:
            left = await lab.backend().owned()
            folders = [lab.state(cluster_id)["folder"] for cluster_id in left]
            try:
                for cluster_id in left:
                    await take_down(lab.backend(), cluster_id)
            finally:
                _kill_all(folders)


def _kill_all(folders: list[str]) -> None:
    for process in [process for folder in folders for process in processes_of(folder)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
