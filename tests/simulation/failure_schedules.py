"""What fails when, drawn from a seed: the same seed gives the same schedule."""

import random
from collections.abc import Iterator
from typing import Any

from cluster_groups.model.group import Member, OnClusterLoss, OnWindowEnd, Policy, Rank, Window
from rayjobs.model.job import Retry, RunMode
from tests.simulation.failing_world import FAULTS_UNTIL_S, Fault, Schedule, Work

KINDS = {
    "cut off": 2, "unreachable": 2, "frozen": 2, "deaf": 1, "killed": 1, "killed unseen": 1, "loses answers": 1,
}  # fmt: skip
HALF_PAST = (Window(start="12:00", end="12:10"), Window(start="12:20", end="23:00"))
"""It is noon; open again in good time."""


def schedule_of(seed: int) -> Schedule:
    chance = random.Random(f"schedule {seed}")  # noqa: S311 - a simulation
    names = ["a", "b", "c"][: chance.choice([2, 2, 3])]
    ttl_s = chance.choice([30, 60, 120])
    policy = Policy(
        rank=chance.choice([Rank.ORDERED, Rank.LEAST_LOADED]),
        on_cluster_loss=OnClusterLoss.REDISPATCH if chance.random() < 0.8 else OnClusterLoss.FAIL,
        lost_timeout_s=ttl_s + 90 + chance.choice([0, 60]),
        spill_after_s=chance.choice([0, 30]),
        failback_stable_s=chance.choice([0, 120]),
        on_window_end=chance.choice(list(OnWindowEnd)),
    )
    members = tuple(
        Member(cluster=name, order=at, tier=min(at, 1), windows=HALF_PAST if chance.random() < 0.3 else ())
        for at, name in enumerate(names)
    )
    return Schedule(
        seed=seed,
        ttl_s=ttl_s,
        policy=policy,
        members=members,
        callbacks={name: chance.random() < 0.85 for name in names},
        work=tuple(_work(chance, names) for _ in range(chance.randint(2, 6))),
        faults=tuple(sorted(_faults(chance, names), key=lambda one: one.at_s)),
    )


def _work(chance: random.Random, names: list[str]) -> Work:
    target: dict[str, Any] = {"run_mode": RunMode.CLUSTER_GROUP, "cluster": None, "cluster_group": "g"}
    if chance.random() < 0.25:
        target = {"cluster": chance.choice(names)}
    on = ("lost", "platform", "placement") if chance.random() < 0.85 else ("platform",)
    retry = Retry(max_attempts=chance.choice([1, 2, 3, 6, 6]), on=on)
    return Work(
        at_s=chance.choice([chance.uniform(0, 200), chance.uniform(0, 200), chance.uniform(200, 900)]),
        runtime_s=chance.choice([20, 60, 200, 600]),
        fields={
            **target,
            "retry": retry,
            "retry_safe": chance.random() < 0.15,
            "stop_grace_s": chance.choice([1, 10, 120]),
        },
        stop_after_s=chance.uniform(1, 300) if chance.random() < 0.08 else None,
    )


def _faults(chance: random.Random, names: list[str]) -> Iterator[Fault]:
    """Of each cluster one after the other, and of the service."""
    for name in names:
        at_s = chance.uniform(5, 250)
        while chance.random() < 0.75 and at_s < FAULTS_UNTIL_S - 200:
            lasts_s = _length(chance)
            yield Fault(kind=chance.choices([*KINDS], [*KINDS.values()])[0], at_s=at_s, lasts_s=lasts_s, cluster=name)
            at_s += lasts_s + 60 + chance.uniform(0, 200)
    if chance.random() < 0.5:
        yield Fault(kind="service down", at_s=chance.uniform(5, 400), lasts_s=_length(chance))
    if chance.random() < 0.3:
        yield Fault(kind="service down", at_s=chance.uniform(5, 400), lasts_s=1)


def _length(chance: random.Random) -> float:
    return chance.choice(
        [chance.uniform(3, 40), chance.uniform(40, 200), chance.uniform(200, 420), chance.uniform(300, 420)]
    )
