"""A gang that needs every node, against a stream of small jobs that never leaves all of them free: Ray alone, Muster.

Ray places what fits when something is given back, whoever waited longer. Muster lets small runs pass for
`reserve_after_s`, then keeps what comes free for the gang: it starts once the runs of that moment have ended.
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.report import Row
from benchmarks.service import ROOMY, Service, service, wait_for
from cluster_groups.model.cluster import Endpoint

NODES = 3
SMALL_S = 16.0
EVERY_S = 2.0
"""Three nodes end 3 small jobs each 16 s; 8 come."""
STREAM_S = 40.0
GANG_AT_S = 5.0
"""When three have taken the nodes, and nobody waits ahead of the gang."""
RESERVE_AFTER_S = 10
PATIENCE_S = 300.0
SLACK_S = 10.0
"""Starting a driver and the tasks' processes, on a machine that is busy with it all."""
BOUND_S = RESERVE_AFTER_S + SMALL_S + SLACK_S

SMALL = f"""python3 -c '
import ray, time
ray.init()
ray.get(ray.remote(num_cpus=1)(lambda: time.sleep({SMALL_S})).remote())'"""
GANG = f"""python3 -c '
import ray, time
from ray.util.placement_group import placement_group
ray.init()
group = placement_group([{{"CPU": 1}}] * {NODES}, strategy="STRICT_SPREAD")
ray.get(group.ready())
open("FILE", "w").write(str(time.time()))'"""


def measure(scale: float) -> Sequence[Row]:
    """One take: the stream is as long as it needs to be to show who waits for its end."""
    del scale
    with service() as muster:
        endpoint = _cluster(muster)
        alone_s = _on_ray(endpoint)
        ours_s = _through_muster(muster)
    return [
        Row(
            what=f"a gang of {NODES} nodes under {STREAM_S:.0f} s of small jobs: until all its tasks have their places",
            ours=f"{ours_s:.0f} s",
            alone=f"{alone_s:.0f} s",
            ratio=ours_s / alone_s,
            goal=f"≤ {BOUND_S:.0f} s",
            met=ours_s <= BOUND_S,
        )
    ]


def _cluster(muster: Service) -> Endpoint:
    """In a resource group whose queue holds early."""
    muster.http.patch(f"/resource-groups/{ROOMY}", json={"queue": {"reserve_after_s": RESERVE_AFTER_S}})
    workers = [{"name": "w1", "cpu": 1, "memory_gib": 2, "min_instances": NODES, "max_instances": NODES}]
    body = {"name": "gangs", "head": {"cpu": 1, "memory_gib": 8}, "worker_groups": workers}
    muster.post("/clusters", {**body, "resource_package": ROOMY, "resource_group": ROOMY})
    muster.post("/clusters/gangs/start")
    return muster.wait_for_cluster("gangs")


@contextmanager
def _stream(submit: Callable[[], None]) -> Iterator[None]:
    """Small jobs, one each `EVERY_S`; the gang is to come when the nodes are busy with them."""
    over = threading.Event()

    def keep_coming() -> None:
        for number in itertools.count(1):
            submit()
            if number * EVERY_S >= STREAM_S or over.wait(EVERY_S):
                return

    thread = threading.Thread(target=keep_coming)
    thread.start()
    time.sleep(GANG_AT_S)
    try:
        yield
    finally:
        over.set()
        thread.join()


def _on_ray(endpoint: Endpoint) -> float:
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    http = httpx.Client(base_url=endpoint.address, headers=headers, timeout=60, trust_env=False)
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder, http:
        placed = Path(folder) / "placed"

        def submit(entrypoint: str) -> None:
            http.post("/api/jobs/", json={"entrypoint": entrypoint}).raise_for_status()

        with _stream(lambda: submit(SMALL)):
            asked_at = time.time()
            submit(GANG.replace("FILE", str(placed)))
            placed_at = float(wait_for(lambda: placed.exists() and placed.read_text(), PATIENCE_S, "Ray's gang"))
        wait_for(lambda: _is_idle(http), PATIENCE_S, "the end of Ray's jobs")
    return placed_at - asked_at


def _is_idle(http: httpx.Client) -> bool:
    states = {job["status"] for job in http.get("/api/jobs/").json()}
    assert states <= {"PENDING", "RUNNING", "SUCCEEDED"}, states
    return states == {"SUCCEEDED"}


def _through_muster(muster: Service) -> float:
    def job(name: str, **fields: Any) -> str:
        return str(muster.post("/jobs", {"name": name, "run_mode": "cluster", "cluster": "gangs", **fields})["id"])

    package = muster.add_package()
    needs = {"requirements": {"cpu": 1}, "max_runtime_s": 60}
    small = job("small", package=package, entrypoint=SMALL, **needs)
    tasks = {"name": "g", "count": NODES, "cpu": 1, "memory_gib": 0.5, "entrypoint": "true"}
    gang = job("gang", task_groups=[tasks])
    with _stream(lambda: muster.post(f"/jobs/{small}/runs")):
        run = muster.post(f"/jobs/{gang}/runs")
        path = f"/runs/{run['id']}"
        wait_for(lambda: muster.get(path)["allocated_at"], PATIENCE_S, "Muster's gang", pause_s=0.5)
    told = muster.get(path)
    asked_at, placed_at = (datetime.fromisoformat(told[name]) for name in ("created_at", "allocated_at"))
    return (placed_at - asked_at).total_seconds()
