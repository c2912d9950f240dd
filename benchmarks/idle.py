"""What the service costs while nothing happens: processor time and memory, with three clusters in its care."""

import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.report import Row
from benchmarks.service import Service, service

CLUSTERS = ("c1", "c2", "c3")
SETTLE_S = 15
WATCH_S = 60
GOAL_CORE = 0.03
GOAL_MB = 200


def measure(scale: float) -> Sequence[Row]:
    with service() as muster:
        for name in CLUSTERS:
            muster.add_cluster(name, head_gib=2)
            muster.wait_for_cluster(name)
        time.sleep(SETTLE_S * scale)
        core = _core(muster, WATCH_S * scale)
        memory = _memory_mb(muster.pid)
    return [
        Row(
            what="processor of the idle service, 3 clusters",
            ours=f"{core:.2%} of a core",
            goal=f"≤ {GOAL_CORE:.0%}",
            met=core <= GOAL_CORE,
        ),
        Row(
            what="memory of the idle service, 3 clusters",
            ours=f"RSS {memory['Rss']:.0f} MB, PSS {memory['Pss']:.0f} MB",
            goal=f"≤ {GOAL_MB} MB",
            met=memory["Rss"] <= GOAL_MB,
        ),
    ]


def _core(muster: Service, watch_s: float) -> float:
    """Share of one core, of the service's own process: its clusters are processes of their own."""
    process = psutil.Process(muster.pid)
    before, start = process.cpu_times(), time.monotonic()
    time.sleep(watch_s)
    after, end = process.cpu_times(), time.monotonic()
    return (after.user + after.system - before.user - before.system) / (end - start)


def _memory_mb(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = (line.split() for line in lines)
    return {name.rstrip(":"): int(kib) * 1024 / 1e6 for name, kib, *_ in sizes}
