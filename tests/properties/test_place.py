"""Placement by count is the same as Ray's own, bundle by bundle and node by node."""

from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.decide.node_pool import NodePool
from cluster_groups.decide.place import Task, place, tasks_of
from cluster_groups.model.demand import Bundles, Demand, PlacementStrategy
from kernel.resources import Resources

Free = dict[str, list[float]]

sizes = st.builds(
    Resources,
    cpu=st.integers(1, 4),
    memory_gib=st.integers(0, 4),
    gpu=st.sampled_from([{}, {}, {"A": 1}, {"B": 2}, {"GPU": 1}]),
)
demands = st.builds(
    Demand,
    bundles=st.lists(st.builds(Bundles, size=sizes, count=st.integers(1, 5)), min_size=1, max_size=3).map(tuple),
    strategy=st.sampled_from(PlacementStrategy),
    gpu_types=st.sampled_from([(), (), ("A",)]),
)
nodes = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 3), st.sampled_from("AB")), max_size=8
).map(lambda made: {f"n{at}": amounts for at, amounts in enumerate(made)})


def score(free: list[float], kind: str, task: Task) -> float | None:
    asked = (task.cpu, task.memory_gib, task.gpu)
    if any(amount > there for amount, there in zip(asked, free, strict=True)):
        return None
    if task.kinds is not None and kind not in task.kinds:
        return None
    return sum((there - amount) / there for amount, there in zip(asked, free, strict=True) if amount)


class Ray:
    """`bundle_scheduling_policy.cc`, less what a placement group has no use for here."""

    def __init__(self, pool: NodePool) -> None:
        self.order = {node: at for at, node in enumerate(pool.free)}
        self.kind = {node: free[3] for node, free in pool.free.items()}
        self.first = dict(pool.free)
        self.free: Free = {node: list(free[:3]) for node, free in pool.free.items()}

    def best(self, task: Task, among: set[str]) -> str | None:
        """Ties as `place` breaks them: Ray takes whichever its hash map shows first."""
        scored = [
            (-found, self.first[node], self.order[node], node)
            for node in among
            if (found := score(self.free[node], self.kind[node], task)) is not None
        ]
        return min(scored)[-1] if scored else None

    def put(self, task: Task, node: str) -> None:
        for at, amount in enumerate((task.cpu, task.memory_gib, task.gpu)):
            self.free[node][at] -= amount

    def places_all(self, bundles: list[Task], strategy: PlacementStrategy) -> bool:
        fresh, used = set(self.free), set[str]()
        if strategy is PlacementStrategy.PACK:
            return self.packs(bundles)
        for task in bundles:
            node = self.best(task, fresh)
            if node is None and strategy is PlacementStrategy.SPREAD:
                node = self.best(task, used)
            if node is None:
                return False
            self.put(task, node)
            fresh.discard(node)
            used.add(node)
        return True

    def packs(self, bundles: list[Task]) -> bool:
        fresh, rest = set(self.free), list(bundles)
        while rest:
            node = self.best(rest[0], fresh)
            if node is None:
                return False
            left = []
            for task in rest:
                if score(self.free[node], self.kind[node], task) is None:
                    left.append(task)
                else:
                    self.put(task, node)
            fresh.discard(node)
            rest = left
        return True

    def takes_as_one(self, bundles: list[Task]) -> bool:
        def fits(node: str) -> bool:
            sums = [
                sum(column) for column in zip(*((one.cpu, one.memory_gib, one.gpu) for one in bundles), strict=True)
            ]
            kinds = [one.kinds for one in bundles if one.kinds is not None]
            enough = all(amount <= there for amount, there in zip(sums, self.free[node], strict=True))
            return enough and all(self.kind[node] in one for one in kinds)

        return any(fits(node) for node in self.free)


@given(nodes, demands)
def test_it_fits_exactly_where_ray_places_it(made: dict[str, tuple[int, int, int, str]], demand: Demand) -> None:
    pool = NodePool(made)
    bundles = [task for task in tasks_of(demand) for _ in range(task.count)]
    ray = Ray(pool)
    if demand.strategy is PlacementStrategy.STRICT_PACK:
        assert place(pool, demand).is_complete == ray.takes_as_one(bundles)
    else:
        assert place(pool, demand).is_complete == ray.places_all(bundles, demand.strategy)


@given(nodes, demands, st.dictionaries(st.sampled_from(["cpu", "memory_gib", "gpu.A", "gpu.B"]), st.integers(0, 30)))
def test_no_node_and_no_room_is_overfilled(
    made: dict[str, tuple[int, int, int, str]], demand: Demand, room: dict[str, float]
) -> None:
    placement = place(NodePool(made), demand, room)
    for node, placed in placement.by_node.items():
        assert all(amount <= there for amount, there in zip(placed[:3], made[node][:3], strict=True))
    assert all(amount <= room.get(name, 0) for name, amount in placement.taken.items())
    assert placement.fitting <= placement.wanted
