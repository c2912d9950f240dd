"""The simulator itself: small worlds whose outcome can be told beforehand."""

from typing import Any

import pytest
from pydantic import ValidationError

from rayjobs.simulation.outcome import Outcome
from rayjobs.simulation.trace import Trace
from rayjobs.simulation.world import simulate


def played(*workloads: dict[str, Any], **fields: Any) -> Outcome:
    trace = {"look_every_s": 0.1, "workloads": list(workloads), **fields}
    return simulate(Trace.model_validate(trace))


QUOTA = {"resource_groups": [{"name": "a", "cpu": 4}]}
CLUSTER = {"clusters": [{"name": "c", "nodes": [{"count": 4, "cpu": 2}]}]}


def test_one_after_the_other_when_there_is_room_for_one() -> None:
    outcome = played({"name": "w", "resource_group": "a", "count": 3, "cpu": 4, "runtime_s": 10}, **QUOTA)
    waits = outcome.waits["w"]
    assert (waits.started, waits.p50_s, waits.longest_s) == (3, 10, 20)
    assert outcome.makespan_s == 30
    assert outcome.utilisation["cpu"] == pytest.approx(1)


def test_a_gang_waits_until_all_its_nodes_are_free() -> None:
    first = {"name": "first", "cluster": "c", "tasks": 4, "cpu": 2, "runtime_s": 60, "max_runtime_s": 60}
    gang = {"name": "gang", "cluster": "c", "tasks": 4, "cpu": 1, "first_at_s": 5, "runtime_s": 1}
    outcome = played(first, gang, **CLUSTER)
    assert outcome.waits["gang"].longest_s == pytest.approx(55)


def test_what_never_fits_is_counted_by_its_reason() -> None:
    outcome = played({"name": "w", "cluster": "c", "tasks": 5, "cpu": 2, "runtime_s": 1}, **CLUSTER)
    assert outcome.waits["w"].started == 0
    assert sum(outcome.waits["w"].unplaced.values()) == 1


def test_the_same_seed_gives_the_same_world() -> None:
    work = {
        "name": "w", "resource_group": "a", "count": 50, "every_s": 1, "arrivals": "poisson", "runtime_s": 5,
        "runtime": "exponential",
    }  # fmt: skip
    first, second, other = (played(work, seed=seed, **QUOTA) for seed in (1, 1, 2))
    assert first.waits == second.waits
    assert first.waits != other.waits


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cluster": "c"}, "exactly one"),
        ({"resource_group": "b"}, "there is no b"),
        ({"count": 0}, "greater than or equal to 1"),
        ({"unknown": 1}, "not permitted"),
    ],
)
def test_a_wrong_trace_is_refused(change: dict[str, Any], told: str) -> None:
    work = {"name": "w", "resource_group": "a", "runtime_s": 1, **change}
    with pytest.raises(ValidationError, match=told):
        played(work, **QUOTA, **CLUSTER)
