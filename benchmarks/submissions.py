"""Accepted submissions a second: Muster, which stores each durably before it answers, against Ray's own POST."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from benchmarks.code import HELLO
from benchmarks.load import Target, post_all
from benchmarks.report import Row
from benchmarks.service import FINAL, Service, service, wait_for
from cluster_groups.model.cluster import Endpoint

ROUNDS = 3
TO_RAY = 60
TO_MUSTER = 400
"""In a round. Both take about a second; Ray has then to work off its own before the next round."""
CONNECTIONS = 16
GOAL = 5.0
DRAIN_TIMEOUT_S = 180

Body = Mapping[str, Any]


def measure(scale: float) -> Sequence[Row]:
    with service() as muster:
        muster.add_cluster("c1", head_gib=4)
        endpoint = muster.wait_for_cluster("c1")
        job = muster.add_job("trivial", "c1", HELLO)
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        alone = Target(address=endpoint.address, path="/api/jobs/", headers=headers)
        rest = Target(address=muster.address, path=f"/api/v1/jobs/{job}/runs", headers=muster.authorization)
        ray = Target(address=muster.address, path="/ray/clusters/c1/api/jobs/", headers=muster.authorization)
        rates: dict[str, list[float]] = {"alone": [], "rest": [], "ray": []}
        for _ in range(max(2, int(ROUNDS * scale))):
            rates["alone"].append(_rate(alone, _ray_bodies(TO_RAY)))
            _drain_ray(endpoint)
            rates["rest"].append(_rate(rest, [{}] * TO_MUSTER))
            _drop_waiting(muster, endpoint)
            rates["ray"].append(_rate(ray, _ray_bodies(TO_MUSTER)))
            _drop_waiting(muster, endpoint)
    return [
        _row("`POST /api/v1/jobs/{ref}/runs`", rates["rest"], rates["alone"]),
        _row("`POST /ray/clusters/<name>/api/jobs/`", rates["ray"], rates["alone"]),
    ]


def _ray_bodies(count: int) -> list[Body]:
    """As `JobSubmissionClient` sends them."""
    return [{"entrypoint": HELLO, "runtime_env": {}, "metadata": {}}] * count


def _rate(target: Target, bodies: Sequence[Body]) -> float:
    answers = post_all(target, bodies, connections=CONNECTIONS)
    assert set(answers.statuses) <= {200, 201}, (answers.statuses, answers.bodies[-1])
    return answers.per_second


def _drain_ray(endpoint: Endpoint) -> None:
    """Until every job on the cluster is over."""
    headers = {"Authorization": f"Bearer {endpoint.token}"}

    def is_quiet() -> bool:
        jobs = httpx.get(f"{endpoint.address}/api/jobs/", headers=headers, timeout=60, trust_env=False).json()
        return all(job["status"] in FINAL for job in jobs)

    wait_for(is_quiet, DRAIN_TIMEOUT_S, "the end of Ray's jobs", pause_s=0.5)


def _drop_waiting(muster: Service, endpoint: Endpoint) -> None:
    """Stop what still waits, let end what was started."""
    muster.post("/clusters/c1/cordon")
    for state in ("SUBMITTED", "WAITING"):
        while runs := muster.get("/runs", state=state, limit=500)["items"]:
            for run in runs:
                muster.post(f"/runs/{run['id']}/stop")
    live = ("STARTING", "RUNNING", "STOPPING")
    wait_for(
        lambda: not any(muster.get("/runs", state=state, limit=1)["items"] for state in live),
        DRAIN_TIMEOUT_S,
        "the end of the runs",
    )
    _drain_ray(endpoint)
    muster.post("/clusters/c1/uncordon")


def _row(what: str, ours: list[float], alone: list[float]) -> Row:
    ratio = statistics.median(ours) / statistics.median(alone)
    return Row(
        what=f"accepted submissions, {what}",
        ours=_told(ours),
        alone=_told(alone),
        ratio=ratio,
        goal=f"≥ {GOAL:.0f}",
        met=ratio >= GOAL,
    )


def _told(rates: list[float]) -> str:
    return f"{statistics.median(rates):.0f}/s ({min(rates):.0f}-{max(rates):.0f})"
