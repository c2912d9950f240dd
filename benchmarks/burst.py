"""300 runs queued at once on one cluster, against the same 300 posted to Ray by a plain loop."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx
import psutil

from benchmarks.code import HELLO, PACKAGE
from benchmarks.report import Row
from benchmarks.service import Service, service, wait_for
from cluster_groups.model.cluster import Endpoint
from rayjobs.decide.room import DRIVER_GIB, HEAD_OWN_GIB

COUNT = 300
HEAD_GIB = 4.0
LIMIT = int((HEAD_GIB - HEAD_OWN_GIB) / DRIVER_GIB)
TIMEOUT_S = 900
LOOK_EVERY_S = 1.0


class Watch(threading.Thread):
    """Looks at the processes of the cluster from outside, the same way for both sides."""

    def __init__(self, service_pid: int) -> None:
        super().__init__(daemon=True)
        self.most_drivers = 0
        self.most_used_gib = 0.0
        self._service = psutil.Process(service_pid)
        self._before = psutil.virtual_memory().used
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            names = [_title(process) for process in self._service.children(recursive=True)]
            self.most_drivers = max(self.most_drivers, sum("JobSupervisor" in name for name in names))
            used = psutil.virtual_memory().used - self._before
            self.most_used_gib = max(self.most_used_gib, used / 2**30)

    def end(self) -> None:
        self._over.set()
        self.join()


@dataclass(frozen=True, kw_only=True, slots=True)
class Burst:
    posted_s: float
    took_s: float
    succeeded: int
    most_drivers: int
    most_used_gib: float


def measure(scale: float) -> Sequence[Row]:
    count = int(COUNT * min(1.0, scale))
    with service() as muster:
        muster.add_cluster("c1", head_gib=HEAD_GIB)
        endpoint = muster.wait_for_cluster("c1")
        ours = _through_muster(muster, count)
        alone = _ray_alone(muster, endpoint, count)
    return [
        Row(
            what=f"{count} runs queued at once, until the last has ended",
            ours=f"{ours.took_s:.0f} s, {ours.succeeded} succeeded",
            alone=f"{alone.took_s:.0f} s, {alone.succeeded} succeeded",
            ratio=ours.took_s / alone.took_s,
            goal="≤ 1.00",
            met=ours.succeeded == count and ours.took_s <= alone.took_s,
        ),
        Row(
            what="the same: posting them, one after the other",
            ours=f"{count / ours.posted_s:.0f}/s",
            alone=f"{count / alone.posted_s:.0f}/s",
            ratio=alone.posted_s / ours.posted_s,
        ),
        Row(
            what=f"the same: most drivers at once (this head's limit: {LIMIT})",
            ours=str(ours.most_drivers),
            alone=str(alone.most_drivers),
            goal=f"≤ {LIMIT}",
            met=ours.most_drivers <= LIMIT,
        ),
        Row(
            what="the same: memory they took at most",
            ours=f"{ours.most_used_gib:.1f} GiB",
            alone=f"{alone.most_used_gib:.1f} GiB",
        ),
    ]


def _through_muster(muster: Service, count: int) -> Burst:
    job = muster.add_job("burst", "c1", HELLO)

    def post() -> None:
        for _ in range(count):
            muster.post(f"/jobs/{job}/runs")

    def is_over() -> bool:
        found = muster.get(f"/jobs/{job}")["run_counts"]
        return not (found["waiting"] or found["starting"] or found["running"])

    def succeeded() -> int:
        return len(muster.get("/runs", job=job, state="SUCCEEDED", limit=500)["items"])

    return _burst(muster.pid, post, is_over, succeeded)


def _ray_alone(muster: Service, endpoint: Endpoint, count: int) -> Burst:
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    with httpx.Client(base_url=endpoint.address, headers=headers, timeout=300, trust_env=False) as http:
        job = {"entrypoint": HELLO, "runtime_env": {"working_dir": "gcs://code.zip"}}
        names = [f"plain-{number}" for number in range(count)]

        def post() -> None:
            http.put("/api/packages/gcs/code.zip", content=PACKAGE).raise_for_status()
            for name in names:
                http.post("/api/jobs/", json={**job, "submission_id": name}).raise_for_status()

        def states() -> list[str]:
            jobs = http.get("/api/jobs/").raise_for_status().json()
            return [job["status"] for job in jobs if job["submission_id"] in names]

        return _burst(
            muster.pid,
            post,
            lambda: not {"PENDING", "RUNNING"} & set(states()),
            lambda: states().count("SUCCEEDED"),
        )


def _burst(pid: int, post: Callable[[], None], is_over: Callable[[], bool], succeeded: Callable[[], int]) -> Burst:
    watch = Watch(pid)
    watch.start()
    start = time.monotonic()
    try:
        post()
        posted_s = time.monotonic() - start
        wait_for(is_over, TIMEOUT_S, "the end of the burst", pause_s=0.5)
        took_s = time.monotonic() - start
    finally:
        watch.end()
    return Burst(
        posted_s=posted_s,
        took_s=took_s,
        succeeded=succeeded(),
        most_drivers=watch.most_drivers,
        most_used_gib=watch.most_used_gib,
    )


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:1])
    except psutil.Error:
        return ""  # it has just ended
