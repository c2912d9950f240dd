"""Submit → finished of a trivial job: Muster against `JobSubmissionClient`, on the same cluster, turn by turn."""

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ray.job_submission import JobSubmissionClient

from benchmarks.code import HELLO, ON_RAY, PACKAGE
from benchmarks.report import Row, median_ms
from benchmarks.service import FINAL, Service, service

JOBS = {"a print": HELLO, "`ray.init()`": ON_RAY}
ROUNDS = 12
POLL_S = 0.02
GOAL = 1.10
TIMEOUT_S = 60

Turn = Callable[[], float]


def measure(scale: float) -> Sequence[Row]:
    rounds = max(3, int(ROUNDS * scale))
    logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.WARNING)
    with service() as muster:
        muster.add_cluster("c1", head_gib=4)
        endpoint = muster.wait_for_cluster("c1")
        alone = JobSubmissionClient(endpoint.address, headers={"Authorization": f"Bearer {endpoint.token}"})
        through = JobSubmissionClient(f"{muster.address}/ray/clusters/c1", headers=muster.authorization)
        code = muster.state_dir / "code.zip"
        code.write_bytes(PACKAGE)
        rows: list[Row] = []
        for name, entrypoint in JOBS.items():
            job = muster.add_job(f"trivial {len(rows)}", "c1", entrypoint)
            turns: list[Turn] = [
                _turn(alone, entrypoint, code),
                lambda job=job: _rest_s(muster, job),  # type: ignore[misc]  # bound here and now
                _turn(through, entrypoint, code),
            ]
            baseline, rest, ray = _by_turns(turns, rounds)
            rows.append(_row(f"submit → finished of {name}, REST", rest, baseline))
            rows.append(_row(f"submit → finished of {name}, Ray endpoint", ray, baseline))
        return rows


def _by_turns(turns: Sequence[Turn], rounds: int) -> list[list[float]]:
    """A B C, B C A, …: a machine that grows slower does so for all, and nobody always follows the same one.

    The first round warms up.
    """
    samples: list[list[float]] = [[] for _ in turns]
    for count in range(rounds + 1):
        for place in range(len(turns)):
            which = (count + place) % len(turns)
            samples[which].append(turns[which]())
    return [taken[1:] for taken in samples]


def _turn(client: JobSubmissionClient, entrypoint: str, code: Path) -> Turn:
    return lambda: _client_s(client, entrypoint, code)


def _client_s(client: JobSubmissionClient, entrypoint: str, code: Path) -> float:
    start = time.perf_counter()
    job = client.submit_job(entrypoint=entrypoint, runtime_env={"working_dir": str(code)})
    status = client.get_job_status(job)
    while not status.is_terminal():
        _pause(start)
        status = client.get_job_status(job)
    assert status == "SUCCEEDED", status
    return time.perf_counter() - start


def _rest_s(muster: Service, job: str) -> float:
    start = time.perf_counter()
    run = muster.post(f"/jobs/{job}/runs")
    while run["state"] not in FINAL:
        _pause(start)
        run = muster.get(f"/runs/{run['id']}")
    assert run["state"] == "SUCCEEDED", run
    return time.perf_counter() - start


def _pause(start: float) -> None:
    assert time.perf_counter() - start < TIMEOUT_S
    time.sleep(POLL_S)


def _row(what: str, ours: list[float], alone: list[float]) -> Row:
    ratio = statistics.median(ours) / statistics.median(alone)
    return Row(
        what=what, ours=median_ms(ours), alone=median_ms(alone), ratio=ratio, goal=f"≤ {GOAL:.2f}", met=ratio <= GOAL
    )
