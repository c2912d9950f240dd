"""Packages of 100 MiB: storing one beside `cp` and `sha256sum`, storing it again, starting a run that has one."""

import os
import statistics
import subprocess
import time
import zipfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from random import Random

import httpx

from benchmarks.report import Row, median_ms
from benchmarks.service import MUSTER, Service, service

SIZE_BYTES = 100 * 2**20
UPLOADS = 5
RUNS = 12
GOAL, START_GOAL = 2.5, 1.05
POLL_S = 0.02
TIMEOUT_S = 120
RAY_PACKAGES, RAY_JOBS = "/ray/clusters/c1/api/packages/gcs", "/ray/clusters/c1/api/jobs/"


def measure(scale: float) -> Sequence[Row]:
    with service() as muster:
        rows = [row for kind in ("stored", "deflated") for row in _storing(muster, kind, max(3, int(UPLOADS * scale)))]
        return [*rows, _starting(muster, max(3, int(RUNS * scale)))]


def _storing(muster: Service, kind: str, rounds: int) -> Sequence[Row]:
    file = muster.state_dir / f"{kind}.zip"
    _pack(file, zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    posted, sent, alone, again = [], [], [], []
    for _ in range(rounds + 1):  # the first warms up
        alone.append(_timed(lambda: _copied(file)))
        posted.append(_timed(lambda: _posted(muster, file)))
        stored = _stored_bytes(muster)
        again.append(_timed(lambda: _posted(muster, file)))
        assert _stored_bytes(muster) == stored, "the same bytes are stored twice"
        _deleted(muster)
        sent.append(_timed(lambda: _sent(muster, file)))
        _deleted(muster)
    what = f"upload of a 100 MiB package, {kind} (`cp` and `sha256sum`)"
    return [
        _row(f"{what}, `POST /packages`", posted[1:], alone[1:], GOAL),
        _row(f"{what}, `muster package upload`, resumable", sent[1:], alone[1:], GOAL),
        Row(what="the same bytes again: no second copy", ours=median_ms(again[1:]), goal="0 bytes more", met=True),
    ]


def _starting(muster: Service, rounds: int) -> Row:
    muster.add_cluster("c1", head_gib=4)
    muster.wait_for_cluster("c1")
    name = "_ray_pkg_benchmark.zip"
    file = muster.state_dir / "package.zip"
    _pack(file, zipfile.ZIP_STORED)
    with httpx.Client(base_url=muster.address, headers=muster.authorization, timeout=60, trust_env=False) as ray:
        ray.put(f"{RAY_PACKAGES}/{name}", content=file.read_bytes()).raise_for_status()
        environments: list[dict[str, str]] = [{}, {"working_dir": f"gcs://{name}"}]
        samples: list[list[float]] = [[], []]
        for turn in range(rounds + 2):  # the first two bring the package there
            for place in (turn % 2, 1 - turn % 2):
                samples[place].append(_timed(lambda place=place: _run(ray, environments[place])))  # type: ignore[misc]
    without, with_package = (taken[2:] for taken in samples)
    what = "submit → finished with a 100 MiB package that the cluster has (without one)"
    return _row(what, with_package, without, START_GOAL)


def _row(what: str, ours: list[float], beside: list[float], goal: float) -> Row:
    ratio = statistics.median(ours) / statistics.median(beside)
    return Row(
        what=what, ours=median_ms(ours), alone=median_ms(beside), ratio=ratio, goal=f"≤ {goal:.2f}", met=ratio <= goal
    )


def _pack(file: Path, method: int) -> None:
    """Of as many bytes packed, whichever way: code and text shrink to about a third, weights not at all."""
    random = Random(7)
    words = [random.randbytes(4).hex().encode() for _ in range(4000)]
    with zipfile.ZipFile(file, "w", method, compresslevel=6) as archive:
        archive.writestr("hello.py", "print('hello')")
        texts = [b" ".join(random.choices(words, k=500_000)) for _ in range(8)]
        for number in count():
            if file.stat().st_size > SIZE_BYTES - 3 * 2**20:
                return
            data = random.randbytes(2**20) if method == zipfile.ZIP_STORED else texts[number % len(texts)]
            archive.writestr(f"{number}.bin", data)


def _timed(act: Callable[[], None]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _copied(file: Path) -> None:
    copy = file.with_suffix(".copy")
    subprocess.run(["sh", "-c", f"cp {file} {copy} && sha256sum {copy}"], check=True, stdout=subprocess.DEVNULL)
    copy.unlink()


def _posted(muster: Service, file: Path) -> None:
    with file.open("rb") as content:
        answer = muster.http.post("/packages", files={"file": ("package.zip", content)}, timeout=TIMEOUT_S)
    assert answer.is_success, answer.text


def _sent(muster: Service, file: Path) -> None:
    environment = {**os.environ, "MUSTER_ADDRESS": muster.address, "MUSTER_TOKEN": muster.token}
    command = [str(MUSTER), "package", "upload", str(file)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def _deleted(muster: Service) -> None:
    for package in muster.get("/packages")["items"]:
        assert muster.http.delete(f"/packages/{package['id']}").is_success


def _stored_bytes(muster: Service) -> int:
    return sum(file.stat().st_size for file in (muster.state_dir / "blobs").rglob("*") if file.is_file())


def _run(ray: httpx.Client, environment: dict[str, str]) -> None:
    start = time.perf_counter()
    entrypoint = "python3 -c \"print('hello')\""
    posted = ray.post(RAY_JOBS, json={"entrypoint": entrypoint, "runtime_env": environment})
    job, status = posted.raise_for_status().json()["submission_id"], "PENDING"
    while status in {"PENDING", "RUNNING"}:
        assert time.perf_counter() - start < TIMEOUT_S
        time.sleep(POLL_S)
        status = ray.get(f"{RAY_JOBS}{job}").json()["status"]
    assert status == "SUCCEEDED", status
