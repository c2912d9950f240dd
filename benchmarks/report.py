"""What a measure found, as rows of one table, and the machine it was found on."""

import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

HEADER = ("measure", "Muster", "Ray alone", "ratio", "goal", "verdict")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """`met` is None where no goal is set, and the row is there to explain another."""

    what: str
    ours: str
    alone: str = "-"
    ratio: float | None = None
    goal: str = "-"
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        verdict = {None: "-", True: "met", False: "MISSED"}[self.met]
        return (self.what, self.ours, self.alone, ratio, self.goal, verdict)


def median_ms(samples_s: Sequence[float]) -> str:
    """The median, and between which values nine of ten samples lie."""
    low, high = spread(samples_s)
    return f"{statistics.median(samples_s) * 1e3:.0f} ms ({low * 1e3:.0f}-{high * 1e3:.0f})"


def spread(samples: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(samples)
    cut = len(ordered) // 20
    return ordered[cut], ordered[-1 - cut]


def markdown(rows: Sequence[Row]) -> str:
    lines = [row.cells for row in rows]
    widths = [max(len(cells[i]) for cells in (HEADER, *lines)) for i in range(len(HEADER))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
        for cells in (HEADER, rule, *lines)
    )


def machine() -> str:
    """One line on what the figures came from."""
    memory_gib = psutil.virtual_memory().total / 2**30
    parts = [
        f"{psutil.cpu_count()} × {_cpu_model()}",
        f"{memory_gib:.0f} GiB",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"Ray {version('ray')}",
        f"load {psutil.getloadavg()[0]:.1f} at the start",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    ]
    return " · ".join(parts)


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
