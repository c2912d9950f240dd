"""A throw-away Ray cluster, a head and its workers on loopback, with its own ports, temp folders and token."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.builders.waiting import wait_until

START_TIMEOUT_S = 60
NODE_ENV = {
    "RAY_AUTH_MODE": "token",
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "DASHBOARD_METRIC_PORT": "0",
    "AUTOSCALER_METRIC_PORT": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
}
LEAN = [
    "--block",
    "--num-gpus=0",
    "--memory=500000000",
    "--object-store-memory=100000000",
    "--include-log-monitor=false",
    "--disable-usage-stats",
    "--min-worker-port=0",
    "--max-worker-port=0",
]


class RayHost:
    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.folders: list[Path] = []
        self._gcs_port, dashboard_port, self._client_port = _free_ports(3)
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{dashboard_port}",
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
            trust_env=False,
        )
        self._dashboard_port = dashboard_port

    def start_head(self) -> subprocess.Popen[bytes]:
        head = self._start(
            "--head",
            f"--port={self._gcs_port}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={self._dashboard_port}",
            f"--ray-client-server-port={self._client_port}",
            "--include-dashboard=true",
            "--no-monitor",
            "--num-cpus=0",
        )
        cluster_file = self.folders[0] / "ray_current_cluster"
        wait_until(lambda: cluster_file.exists() and self._answers(), START_TIMEOUT_S, self._last_output)
        return head

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        return self._start(
            f"--address=127.0.0.1:{self._gcs_port}",
            f"--node-ip-address=127.0.0.{number + 1}",
            f'--resources={{"worker{number}": 1}}',
            "--num-cpus=1",
        )

    def alive_nodes(self) -> int:
        rows = self.http.get("/api/v0/nodes").json()["data"]["result"]["result"]
        return sum(row["state"] == "ALIVE" for row in rows)

    def put_package(self, name: str, data: bytes) -> None:
        if self.http.get(f"/api/packages/gcs/{name}").status_code == 404:
            self.http.put(f"/api/packages/gcs/{name}", content=data).raise_for_status()

    def submit(self, **fields: Any) -> None:
        answer = self.http.post("/api/jobs/", json=fields)
        assert answer.status_code == 200, answer.text

    def info(self, submission_id: str) -> dict[str, Any]:
        answer = self.http.get(f"/api/jobs/{submission_id}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def stop_job(self, submission_id: str) -> None:
        self.http.post(f"/api/jobs/{submission_id}/stop").raise_for_status()

    def wait_ended(self, submission_id: str, timeout_s: float = 30) -> dict[str, Any]:
        ended = {"SUCCEEDED", "FAILED", "STOPPED"}
        wait_until(lambda: self.info(submission_id)["status"] in ended, timeout_s, lambda: submission_id)
        return self.info(submission_id)

    def close(self) -> None:
        self.http.close()
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            _wait_or_kill(node)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        folder = Path(tempfile.mkdtemp(prefix="mr"))
        self.folders.append(folder)
        agent_port, *_ = _free_ports(1)
        ray = Path(sys.executable).with_name("ray")
        path = f"{ray.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(folder), "RAY_AUTH_TOKEN": self.token, **NODE_ENV}
        with (folder / "start.log").open("wb") as output:  # a pipe would never close: Ray's daemons inherit it
            node = subprocess.Popen(
                [
                    ray,
                    "start",
                    *arguments,
                    *LEAN,
                    f"--temp-dir={folder}",
                    f"--dashboard-agent-listen-port={agent_port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        self.nodes.append(node)
        return node

    def _answers(self) -> bool:
        try:
            return self.http.get("/api/v0/nodes").status_code == 200
        except httpx.HTTPError:
            return False

    def _last_output(self) -> str:
        return (self.folders[-1] / "start.log").read_text(errors="replace")[-2000:]


@contextmanager
def ray_host(workers: int) -> Iterator[RayHost]:
    host = RayHost()
    with ExitStack() as ending:
        ending.callback(host.close)
        host.start_head()
        for number in range(1, workers + 1):
            host.start_worker(number)
        wait_until(lambda: host.alive_nodes() == workers + 1, START_TIMEOUT_S, host._last_output)
        yield host


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait_or_kill(node: subprocess.Popen[bytes]) -> None:
    try:
        node.wait(timeout=10)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
