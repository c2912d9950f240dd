"""How long `muster --help` takes, beside `ray --help`."""

import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row, median_ms
from benchmarks.service import MUSTER

ROUNDS = 15
GOAL_S = 0.300


def measure(scale: float) -> Sequence[Row]:
    ours: list[float] = []
    alone: list[float] = []
    for _ in range(max(3, int(ROUNDS * scale))):
        ours.append(_start_s(MUSTER))
        alone.append(_start_s(MUSTER.with_name("ray")))
    median_s = statistics.median(ours)
    return [
        Row(
            what="start of `muster --help` (`ray --help`)",
            ours=median_ms(ours),
            alone=median_ms(alone),
            ratio=median_s / statistics.median(alone),
            goal=f"≤ {GOAL_S * 1e3:.0f} ms",
            met=median_s <= GOAL_S,
        )
    ]


def _start_s(program: Path) -> float:
    start = time.perf_counter()
    subprocess.run([program, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
