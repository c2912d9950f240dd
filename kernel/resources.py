"""Amounts of cpu, memory and accelerators by type, as one vector."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SLACK = 1e-6
"""By so little sums of amounts may differ that mean the same; Ray counts in steps of 0.0001."""
ANY_GPU = "GPU"
"""The type of accelerators whose maker and model nobody named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """cpu and gpu in counts, memory in GiB (2**30 bytes)."""

    cpu: float = 0
    memory_gib: float = 0
    gpu: Mapping[str, float] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.cpu, self.memory_gib, frozenset(self.gpu.items())))

    def __add__(self, other: "Resources") -> "Resources":
        return self._merge(other, 1)

    def __sub__(self, other: "Resources") -> "Resources":
        return self._merge(other, -1)

    def __mul__(self, times: float) -> "Resources":
        gpu = {name: count * times for name, count in self.gpu.items()}
        return Resources(cpu=self.cpu * times, memory_gib=self.memory_gib * times, gpu=gpu)

    def capped(self, other: "Resources") -> "Resources":
        """The smaller of both in each dimension."""
        gpu = {name: min(count, other.gpu.get(name, 0)) for name, count in self.gpu.items()}
        cpu, memory_gib = min(self.cpu, other.cpu), min(self.memory_gib, other.memory_gib)
        return Resources(cpu=cpu, memory_gib=memory_gib, gpu=gpu)

    def beyond(self, room: "Resources") -> dict[str, tuple[float, float]]:
        """What is asked above the room: `{dimension: (asked, there)}`; GPU dimensions are named `gpu.<TYPE>`."""
        asked, there = self.flat(), room.flat()
        return {
            name: (amount, there.get(name, 0))
            for name, amount in asked.items()
            if amount > 0 and amount > there.get(name, 0) + SLACK
        }

    def flat(self) -> dict[str, float]:
        gpus = {f"gpu.{name}": count for name, count in self.gpu.items()}
        return {"cpu": self.cpu, "memory_gib": self.memory_gib, **gpus}

    def _merge(self, other: "Resources", sign: int) -> "Resources":
        names = sorted({*self.gpu, *other.gpu})
        return Resources(
            cpu=self.cpu + sign * other.cpu,
            memory_gib=self.memory_gib + sign * other.memory_gib,
            gpu={name: self.gpu.get(name, 0) + sign * other.gpu.get(name, 0) for name in names},
        )


def total(amounts: Iterable[Resources]) -> Resources:
    """Their sum; over the nodes of a fleet, so not by adding one to the next."""
    cpu: float = 0
    memory_gib: float = 0
    gpu: dict[str, float] = {}
    for one in amounts:
        cpu += one.cpu
        memory_gib += one.memory_gib
        for name, count in one.gpu.items():
            gpu[name] = gpu.get(name, 0) + count
    return Resources(cpu=cpu, memory_gib=memory_gib, gpu=dict(sorted(gpu.items())))
