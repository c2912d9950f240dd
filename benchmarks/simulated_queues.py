"""The queue alone, over simulated weeks: how many starts a second it decides, who waits how long, what stays idle."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import Row
from rayjobs.simulation.outcome import Outcome, Waits
from rayjobs.simulation.trace import Trace
from rayjobs.simulation.world import simulate

GOAL_UTILISATION = 0.90
NODES, CARDS = 16, 8


def measure(scale: float) -> Sequence[Row]:
    return [
        *_rows(simulate(gangs_on_clusters(30, max(25, int(500 * scale)))), 1000, scale),
        *_rows(simulate(sizes_in_quotas(int(1000 * min(1.0, scale * 2)), 50)), 500, scale),
    ]


def gangs_on_clusters(queues: int, runs: int) -> Trace:
    """Each queue is a cluster of 16 nodes with 8 cards, gangs take up to half of it; a third too much work comes."""
    kinds: tuple[tuple[str, float, dict[str, Any]], ...] = (
        ("small", 0.70, {"gpu": 1, "runtime_s": 600, "max_runtime_s": 1800, "every_s": 130}),
        ("medium", 0.20, {"gpu": 8, "tasks": 2, "runtime_s": 1200, "max_runtime_s": 3600, "every_s": 460}),
        ("large", 0.10, {"gpu": 8, "tasks": NODES // 2, "runtime_s": 1800, "max_runtime_s": 5400, "every_s": 920}),
    )
    nodes = [{"count": NODES, "cpu": 64, "gpu": CARDS, "gpu_type": "H100"}]
    return _trace(
        clusters=[{"name": f"q{queue}", "nodes": nodes, "resource_group": "default"} for queue in range(queues)],
        resource_groups=[{"name": "default"}],
        workloads=[
            {
                "name": f"{name} {queue}", "cluster": f"q{queue}", "count": max(1, int(runs * share)), "cpu": 1,
                "gpu_type": "H100", "runtime": "exponential", "arrivals": "poisson", **fields,
            }
            for queue in range(queues)
            for name, share, fields in kinds
        ],
    )  # fmt: skip


def sizes_in_quotas(queues: int, runs: int) -> Trace:
    """Each queue is a quota of 20 cpu, with the shares, sizes and priorities of Kueue's published load."""
    kinds: tuple[tuple[str, float, dict[str, Any]], ...] = (
        ("small", 0.70, {"cpu": 1, "priority": 1, "runtime_s": 20, "max_runtime_s": 200}),
        ("medium", 0.20, {"cpu": 5, "priority": 5, "runtime_s": 50, "max_runtime_s": 500}),
        ("large", 0.10, {"cpu": 20, "priority": 9, "runtime_s": 100, "max_runtime_s": 1000}),
    )
    return _trace(
        resource_groups=[{"name": f"q{queue}", "cpu": 20} for queue in range(queues)],
        workloads=[
            {
                "name": f"{name} {queue}", "resource_group": f"q{queue}", "count": int(runs * share),
                "every_s": 2, "arrivals": "poisson", "runtime": "exponential", **fields,
            }
            for queue in range(queues)
            for name, share, fields in kinds
        ],
    )  # fmt: skip


def _trace(**fields: Any) -> Trace:
    return Trace.model_validate(fields)


def _rows(outcome: Outcome, goal: int, scale: float) -> list[Row]:
    runs = sum(waits.submitted for waits in outcome.waits.values())
    queues = len({name.partition(" ")[2] for name in outcome.waits})
    what = f"simulated: {runs} runs in {queues} queues"
    resource = "gpu.H100" if "gpu.H100" in outcome.utilisation else "cpu"
    used = outcome.utilisation[resource]
    return [
        Row(
            what=f"{what}: starts per second of the scheduler's processor",
            ours=f"{outcome.admissions_per_s:.0f}/s ({outcome.admissions} in {outcome.scheduler_s:.1f} s)",
            goal=f"≥ {goal}",
            met=outcome.admissions_per_s >= goal if scale >= 1 else None,
        ),
        Row(
            what=f"the same: {resource} in use while somebody waits",
            ours=f"{used:.1%}",
            goal=f"≥ {GOAL_UTILISATION:.0%}" if resource != "cpu" else "-",
            met=used >= GOAL_UTILISATION if resource != "cpu" else None,
        ),
        Row(what="the same: wait, p50 / p99", ours=_by_kind(outcome.waits)),
        Row(what="the same: one look, by queue length", ours=_cost(outcome)),
    ]


def _by_kind(waits: Mapping[str, Waits]) -> str:
    """The middle queue's figures of each kind: queues are alike."""
    kinds: dict[str, list[Waits]] = {}
    for name, found in waits.items():
        kinds.setdefault(name.partition(" ")[0], []).append(found)
    middle = {name: sorted(found, key=lambda one: one.p50_s)[len(found) // 2] for name, found in kinds.items()}
    return ", ".join(f"{name} {_hours(one.p50_s)} / {_hours(one.p99_s)}" for name, one in middle.items())


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"


def _cost(outcome: Outcome) -> str:
    rows = [one for one in outcome.cost if one.waiting >= 64]
    return ", ".join(f"≤ {one.waiting}: {one.mean_ms:.1f} ms" for one in rows)
