"""A Muster of the benchmark's own: the real `muster serve` in a process of its own, an empty state folder, real Ray."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.code import PACKAGE
from cluster_groups.backends.local_state import StateFolder
from cluster_groups.model.cluster import Endpoint

MUSTER = Path(sys.executable).with_name("muster")
ROOMY = "bench"
START_TIMEOUT_S = 60
CLUSTER_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
FINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "QUEUE_TIMEOUT"})


class Service:
    def __init__(self, state_dir: Path, process: subprocess.Popen[bytes], address: str) -> None:
        self.state_dir = state_dir
        self.pid = process.pid
        self.address = address
        self.token = (state_dir / "admin-token").read_text().strip()
        self.http = httpx.Client(base_url=f"{address}/api/v1", headers=self.authorization, timeout=60, trust_env=False)

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str, **params: Any) -> Any:
        return _body(self.http.get(path, params=params))

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return _body(self.http.post(path, json=body or {}))

    def make_room(self) -> None:
        """For more clusters than the default resource group of a small machine holds."""
        amounts = {"cpu": 100, "memory_gib": 100}
        self.post("/resource-packages", {"name": ROOMY, "capacity": amounts})
        self.post("/resource-groups", {"name": ROOMY, "resource_package": ROOMY, "quota": amounts})

    def add_cluster(self, name: str, *, head_gib: float) -> None:
        """Ask for a head and one worker; `wait_for_cluster` says when they are there."""
        head = {"cpu": 1, "memory_gib": head_gib}
        workers = [{"name": "w1", "cpu": 1, "memory_gib": 2}]
        body = {"name": name, "head": head, "worker_groups": workers}
        self.post("/clusters", {**body, "resource_package": ROOMY, "resource_group": ROOMY})
        self.post(f"/clusters/{name}/start")

    def wait_for_cluster(self, name: str) -> Endpoint:
        """Where its own Jobs API answers, once it takes work."""

        def cluster() -> Any:
            found = self.get(f"/clusters/{name}")
            is_up = found["state"] == "RUNNING" and found["health"]["status"] == "HEALTHY"
            return found if is_up else None

        found = wait_for(cluster, CLUSTER_TIMEOUT_S, f"cluster {name}")
        known = StateFolder(self.state_dir / "local").load(found["id"])
        assert known is not None
        return known.endpoint

    def add_job(self, name: str, cluster: str, entrypoint: str) -> str:
        job = {"name": name, "run_mode": "cluster", "cluster": cluster, "entrypoint": entrypoint}
        return str(self.post("/jobs", {**job, "package": self.add_package()})["id"])

    def add_package(self) -> str:
        upload = {"file": ("code.zip", PACKAGE, "application/zip")}
        return str(_body(self.http.post("/packages", files=upload))["id"])

    def serves_ray(self) -> bool:
        return httpx.get(f"{self.address}/ray/api/version", headers=self.authorization, trust_env=False).is_success

    def end_clusters(self) -> None:
        names = [cluster["name"] for cluster in self.get("/clusters")["items"]]
        for name in names:
            self.http.request("DELETE", f"/clusters/{name}", json={"force": True})
        wait_for(lambda: not self.get("/clusters")["items"], STOP_TIMEOUT_S, "the end of the clusters")


@contextmanager
def service(database_url: str = "") -> Iterator[Service]:
    """Prepared and serving; afterwards its clusters, its process and its folder are gone."""
    with ExitStack() as ending:
        state_dir = Path(tempfile.mkdtemp(prefix="muster-bench-"))
        ending.callback(shutil.rmtree, state_dir, ignore_errors=True)
        log = ending.enter_context((state_dir / "service.log").open("wb"))
        environment = {
            "PATH": f"{MUSTER.parent}:/usr/bin:/bin",
            "HOME": str(state_dir),
            "MUSTER_STATE_DIR": str(state_dir),
            "MUSTER_DATABASE_URL": database_url,
            "MUSTER_LOG_LEVEL": "warning",
        }
        process = subprocess.Popen([MUSTER, "serve", "--port", "0"], stdout=log, stderr=log, env=environment)
        ending.callback(_stop, process)

        def address() -> str | None:
            assert process.poll() is None, _tail(state_dir)
            first = (state_dir / "service.log").read_text().partition("\n")[0]
            return first.rpartition(" ")[2] if first.startswith("Muster ") else None

        found = Service(state_dir, process, wait_for(address, START_TIMEOUT_S, "the service"))
        ending.callback(found.http.close)
        ending.callback(found.end_clusters)
        found.make_room()
        yield found


def wait_for(look: Callable[[], Any], timeout_s: float, what: str, *, pause_s: float = 0.1) -> Any:
    """What `look` answers, as soon as it is something."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(pause_s)
    return found


def _body(answer: httpx.Response) -> Any:
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(state_dir: Path) -> str:
    return (state_dir / "service.log").read_text(errors="replace")[-2000:]
