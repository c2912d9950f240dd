"""What holds of every plan of admission, and of what plans add up to over time."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_groups.model.cluster import Node
from cluster_groups.model.demand import Bundles, ClusterView, Demand
from cluster_groups.model.quota import QueueSettings
from kernel.resources import Resources
from rayjobs.decide.admit import plan_admission
from rayjobs.model.job import RunMode
from tests.builders.queue_world import Coming, QueueWorld, held_in, order_queue
from tests.builders.runs import NOW, a_cluster, a_group, a_resource_group, a_run

NODES = {"c1": (4, 4, 4, 2, 2, 1), "c2": (4, 2)}
SHORT_AND_LONG = st.sampled_from([3, 5, 8, 10, 15, 20, 40, 60])
reserves = st.sampled_from([0, 0, 10])
demands = st.one_of(
    st.integers(1, 4).map(lambda cpu: Demand(resources=Resources(cpu=cpu))),
    st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda pair: gang(*pair)),
    st.sampled_from([(3, 3), (4, 3), (2, 5), (4, 2), (1, 6)]).map(lambda pair: gang(*pair)),
)


def gang(cpu: int, count: int) -> Demand:
    size = Resources(cpu=cpu)
    return Demand(resources=size * count, bundles=(Bundles(size=size, count=count),))


def a_cluster_of(name: str) -> ClusterView:
    nodes = tuple(
        Node(id=f"{name}-{at}", ip="", group="w", alive=True, is_head=False, total=Resources(cpu=cpu))
        for at, cpu in enumerate(NODES[name])
    )
    return a_cluster(name, nodes=nodes, max_runs=99, head_memory_gib=64)


@st.composite
def comings(draw: Any, modes: list[RunMode], limits: st.SearchStrategy[int | None], most: int = 20) -> list[Coming]:
    """Enough for a crowd: rooms are small, and everybody comes within half a minute."""
    found = []
    among = draw(st.lists(st.sampled_from(modes), min_size=1, unique=True))
    for number in range(1, draw(st.integers(3, most)) + 1):
        mode = draw(st.sampled_from(among))
        on_demand = mode is RunMode.ON_DEMAND
        limit = draw(limits)
        run = a_run(
            number,
            run_mode=mode,
            enqueued_at=NOW + timedelta(seconds=draw(st.integers(0, 30))),
            demand=Demand(resources=Resources(cpu=draw(st.integers(1, 8)))) if on_demand else draw(demands),
            priority=draw(st.sampled_from([1, 5, 9])) if on_demand else None,
            max_runtime_s=limit,
        )
        found.append(Coming(run, draw(st.integers(1, limit or 60))))
    return found


def a_world(reserve_after_s: int | None, aging_s: int = 50) -> QueueWorld:
    queue = QueueSettings(aging_s=aging_s, reserve_after_s=reserve_after_s)
    return QueueWorld(
        clusters=[a_cluster_of("c1"), a_cluster_of("c2")],
        resource_groups={"default": a_resource_group(quota=Resources(cpu=8), queue=queue)},
        groups={"g1": a_group("c2", "c1")},
    )


every_mode = [RunMode.ON_DEMAND, RunMode.CLUSTER, RunMode.CLUSTER_GROUP]
some_limits = st.one_of(st.none(), SHORT_AND_LONG)


@given(comings(every_mode, some_limits), reserves)
@settings(deadline=None)
def test_nothing_started_after_a_run_was_held_delays_its_projected_start(runs: list[Coming], reserve: int) -> None:
    """And quotas and nodes are never overbooked: the world looks after that."""
    world = a_world(reserve)
    world.play(runs)
    for _, plan in world.looks:
        for one in plan.waiting:
            if one.predicted_start is not None:
                (run,) = one.runs
                assert world.started_s[run.id] <= (one.predicted_start - NOW).total_seconds()


@given(comings(every_mode, some_limits), reserves)
@settings(deadline=None)
def test_capacity_is_held_for_one_run_of_a_queue_and_until_it_starts(runs: list[Coming], reserve: int) -> None:
    world = a_world(reserve)
    world.play(runs)
    before: dict[str, str] = {}
    for _, plan in world.looks:
        held = {run.queue: run.id for run in held_in(plan)}
        assert len(held) == len(held_in(plan))
        started = {start.run.id for start in plan.starts}
        assert all(held.get(queue) == run or run in started for queue, run in before.items())
        before = {queue: run for queue, run in held.items() if run not in started}


@given(comings([RunMode.CLUSTER], SHORT_AND_LONG), reserves, st.integers(5, 100))
@settings(deadline=None)
def test_no_run_waits_beyond_its_bound(runs: list[Coming], reserve: int, aging: int) -> None:
    """Older ones of equal priority go first; each then waits for those that run, and these have declared limits."""
    world = a_world(reserve, aging)
    world.play(runs)
    longest = max(one.run.max_runtime_s or 0 for one in runs)
    for one in runs:
        run, came_s = one.run, (one.run.enqueued_at - NOW).total_seconds()
        if run.id not in world.started_s:  # larger than the cluster
            assert sum(bundles.count for bundles in run.demand.bundles) > 3  # of three nodes with 3 cores or more
            continue
        older = sum((other.run.enqueued_at, other.run.id) < (run.enqueued_at, run.id) for other in runs)
        assert world.started_s[run.id] - came_s <= reserve + (older + 1) * longest


@given(comings([RunMode.ON_DEMAND], SHORT_AND_LONG), reserves, st.integers(10, 60))
@settings(deadline=None)
def test_no_run_starves_however_low_its_priority(runs: list[Coming], reserve: int, aging: int) -> None:
    world = a_world(reserve, aging)
    world.play(runs)
    longest = max(one.run.max_runtime_s or 0 for one in runs)
    for one in runs:
        came_s = (one.run.enqueued_at - NOW).total_seconds()
        assert world.started_s[one.run.id] - came_s <= reserve + len(runs) * longest


def test_a_stream_of_small_runs_does_not_starve_a_gang() -> None:
    """Whether or not they declare limits: what they give back is held for it (R11)."""
    for limit in (None, 40):
        small = [
            Coming(a_run(at, demand=Demand(resources=Resources(cpu=2)), max_runtime_s=limit), 20) for at in range(400)
        ]
        large = Coming(a_run(1000, enqueued_at=NOW + timedelta(seconds=5), demand=gang(3, 3)), 10)
        world = a_world(reserve_after_s=30)
        world.play([*small, large])
        assert world.started_s["run_1000"] - 5 <= 30 + 40


@given(comings(every_mode, some_limits, most=25), reserves, st.integers(0, 200), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_same_snapshot_gives_the_same_plan_in_whatever_order_it_is_read(
    runs: list[Coming], reserve: int, now_s: int, chance: random.Random
) -> None:
    snapshot = replace(a_world(reserve).snapshot(), runs=tuple(one.run for one in runs))
    shuffled = list(snapshot.runs)
    chance.shuffle(shuffled)
    now = NOW + timedelta(seconds=now_s)
    plan = plan_admission(snapshot, now)
    assert plan == plan_admission(replace(snapshot, runs=tuple(shuffled)), now)
    told = Counter(one.run.id for one in (*plan.starts, *plan.waits, *plan.give_ups))
    assert told == Counter(run.id for run in snapshot.runs)


@given(comings([RunMode.ON_DEMAND, RunMode.CLUSTER], some_limits, most=25), reserves, st.integers(0, 200))
@settings(deadline=None)
def test_a_queue_alone_gets_the_same_answers(runs: list[Coming], reserve: int, now_s: int) -> None:
    snapshot = replace(a_world(reserve).snapshot(), runs=tuple(one.run for one in runs))
    now = NOW + timedelta(seconds=now_s)
    plan = plan_admission(snapshot, now)
    for mode in (RunMode.ON_DEMAND, RunMode.CLUSTER):
        mine = tuple(run for run in snapshot.runs if run.run_mode is mode)
        alone = plan_admission(replace(snapshot, runs=mine), now)
        assert [start for start in plan.starts if start.run.run_mode is mode] == list(alone.starts)
        assert [one for one in plan.waiting if one.runs[0].run_mode is mode] == list(alone.waiting)


@given(comings([RunMode.ON_DEMAND], some_limits, most=25), st.integers(10, 100), st.integers(0, 500))
def test_the_order_is_total_and_age_decides_among_equals(runs: list[Coming], aging: int, now_s: int) -> None:
    queue, now = QueueSettings(aging_s=aging), NOW + timedelta(seconds=now_s)
    waiting = [one.run for one in runs]
    ordered = order_queue(waiting, queue, now)
    assert ordered == order_queue(reversed(waiting), queue, now)
    for priority in range(1, 10):
        equals = [(run.enqueued_at, run.id) for run in ordered if run.priority == priority]
        assert equals == sorted(equals)
