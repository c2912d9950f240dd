"""What a simulation found, in figures people plan by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil


@dataclass(frozen=True, kw_only=True, slots=True)
class Waits:
    """Seconds between submission and start, over the runs of one workload that started."""

    submitted: int
    started: int
    mean_s: float
    p50_s: float
    p99_s: float
    longest_s: float
    unplaced: Mapping[str, int] = field(default_factory=dict)
    """What the others were waiting for when nothing could happen any more: runs by condition code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """Looks at the queue while it was at most `waiting` runs long (and longer than the row before)."""

    waiting: int
    rounds: int
    mean_ms: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """`utilisation` is by resource, over the time in which somebody waited; scheduler time is this machine's."""

    makespan_s: float
    waits: Mapping[str, Waits]
    utilisation: Mapping[str, float]
    admissions: int
    rounds: int
    scheduler_s: float
    cost: Sequence[Rounds]

    @property
    def admissions_per_s(self) -> float:
        return self.admissions / self.scheduler_s if self.scheduler_s else 0.0


def waits_of(waited_s: Sequence[float], submitted: int, unplaced: Mapping[str, int]) -> Waits:
    ordered = sorted(waited_s)
    return Waits(
        submitted=submitted,
        started=len(ordered),
        mean_s=sum(ordered) / len(ordered) if ordered else 0.0,
        p50_s=_quantile(ordered, 0.50),
        p99_s=_quantile(ordered, 0.99),
        longest_s=ordered[-1] if ordered else 0.0,
        unplaced=unplaced,
    )


def cost_of(looks: Sequence[tuple[int, float]]) -> list[Rounds]:
    """`looks` are (queue length, seconds); by powers of two."""
    by_size: dict[int, list[float]] = {}
    for waiting, seconds in looks:
        by_size.setdefault(1 << max(waiting - 1, 0).bit_length(), []).append(seconds)
    return [
        Rounds(waiting=size, rounds=len(found), mean_ms=1000 * sum(found) / len(found))
        for size, found in sorted(by_size.items())
    ]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share does not exceed."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
