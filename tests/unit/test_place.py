"""Where the bundles of a gang find their places, and which never will."""

from dataclasses import replace

import pytest

from cluster_groups.decide.match import match_cluster
from cluster_groups.decide.node_pool import Amounts, NodePool, amounts_of, pool_of, sizes_of
from cluster_groups.decide.place import Placement, never_fits, place, spared
from cluster_groups.model.cluster import HEAD_GROUP, Node, NodeShape
from cluster_groups.model.demand import Bundles, Demand, PlacementStrategy
from kernel.resources import ANY_GPU, Resources
from tests.builders.clusters import a_view

SPREAD, PACK = PlacementStrategy.SPREAD, PlacementStrategy.PACK
STRICT_SPREAD, STRICT_PACK = PlacementStrategy.STRICT_SPREAD, PlacementStrategy.STRICT_PACK


def gang(*bundles: tuple[int, float], strategy: PlacementStrategy = STRICT_SPREAD, **size: object) -> Demand:
    """Each of `bundles` is a count and its cores; `size` is what all of them take beside."""
    made = tuple(Bundles(size=Resources(cpu=cpu, **size), count=count) for count, cpu in bundles)  # type: ignore[arg-type]  # amounts
    return Demand(bundles=made, strategy=strategy)


def pool(*cpus: float) -> NodePool:
    return NodePool({f"n{at}": (cpu, 64, 0, "") for at, cpu in enumerate(cpus)})


def cards(**nodes: tuple[float, str]) -> NodePool:
    return NodePool({name: (8, 64, count, kind) for name, (count, kind) in nodes.items()})


def counts(placement: Placement) -> tuple[int, int]:
    return placement.fitting, placement.wanted


def cpus(placement: Placement) -> dict[str, float]:
    return {node: amount.cpu for node, amount in placement.nodes.items()}


class TestStrategies:
    def test_strict_spread_gives_each_a_node_of_its_own(self) -> None:
        assert cpus(place(pool(4, 4, 4), gang((3, 1)))) == {"n0": 1, "n1": 1, "n2": 1}
        assert counts(place(pool(4, 4), gang((3, 1)))) == (2, 3)

    def test_the_largest_comes_first_and_takes_the_emptiest_node(self) -> None:
        assert cpus(place(pool(2, 8, 4), gang((1, 1), (1, 4)))) == {"n1": 4, "n2": 1}

    def test_spread_uses_a_node_again_when_there_is_no_other(self) -> None:
        assert cpus(place(pool(4, 2), gang((4, 1), strategy=SPREAD))) == {"n0": 3, "n1": 1}
        assert counts(place(pool(4, 2), gang((4, 2), strategy=SPREAD))) == (3, 4)

    def test_pack_fills_one_node_after_the_other(self) -> None:
        assert cpus(place(pool(4, 8, 4), gang((2, 3), (2, 1), strategy=PACK))) == {"n1": 8}
        assert cpus(place(pool(4, 4), gang((2, 3), (2, 1), strategy=PACK))) == {"n0": 4, "n1": 4}

    def test_strict_pack_takes_one_node_or_none(self) -> None:
        assert cpus(place(pool(4, 8), gang((3, 2), (1, 2), strategy=STRICT_PACK))) == {"n1": 8}
        split = place(pool(6, 6), gang((4, 2), strategy=STRICT_PACK))
        assert (counts(split), split.by_node) == ((3, 4), {})

    def test_a_greedy_layout_that_ray_would_not_find_is_none(self) -> None:
        """The larger task takes the emptier node by share, which only the other one would fit on."""
        nodes = NodePool({"a": (4, 100, 0, ""), "b": (3, 10, 0, "")})
        large, small = Resources(cpu=1, memory_gib=9), Resources(cpu=4, memory_gib=1)
        both = Demand(bundles=(Bundles(size=large, count=1), Bundles(size=small, count=1)))
        assert counts(place(nodes, both)) == (1, 2)


class TestAccelerators:
    def test_a_named_type_is_found_on_its_nodes_only(self) -> None:
        nodes = cards(a=(8, "H100"), b=(8, "A100"), c=(8, "A100"))
        assert counts(place(nodes, gang((2, 1), gpu={"A100": 4}))) == (2, 2)
        assert counts(place(nodes, gang((2, 1), gpu={"H100": 4}))) == (1, 2)

    def test_any_type_is_any_of_those_the_job_takes(self) -> None:
        nodes = cards(a=(8, "H100"), b=(8, "A100"), c=(8, "L4"))
        anything = gang((3, 1), gpu={ANY_GPU: 8})
        placement = place(nodes, anything)
        assert placement.nodes["a"].gpu == {"H100": 8}
        assert placement.taken == {"cpu": 3, "gpu.H100": 8, "gpu.A100": 8, "gpu.L4": 8}
        assert counts(place(nodes, replace(anything, gpu_types=("H100", "L4")))) == (2, 3)

    def test_tasks_without_leave_those_with_their_nodes(self) -> None:
        nodes = cards(a=(8, "H100"), b=(0, ""))
        both = Demand(
            bundles=(Bundles(size=Resources(cpu=8), count=1), Bundles(size=Resources(cpu=8, gpu={"H100": 8}), count=1))
        )
        assert counts(place(nodes, both)) == (2, 2)


class TestRoom:
    def test_what_plain_runs_hold_is_on_no_node_and_still_taken(self) -> None:
        room = {"cpu": 5, "memory_gib": 100}
        assert counts(place(pool(4, 4), gang((2, 3)), room)) == (1, 2)
        assert counts(place(pool(4, 4), gang((2, 3)), room | {"cpu": 6})) == (2, 2)

    def test_type_by_type(self) -> None:
        nodes = cards(a=(8, "H100"), b=(8, "H100"), c=(8, "A100"))
        room = {"cpu": 99, "gpu.H100": 8, "gpu.A100": 8}
        assert set(place(nodes, gang((2, 1), gpu={ANY_GPU: 8}), room).nodes) == {"a", "c"}


class TestPool:
    NODE = Node(id="n", ip="", group="w", alive=True, is_head=False, total=Resources(cpu=8, memory_gib=8))

    def free(self, *placed: dict[str, Amounts], **fields: object) -> Amounts:
        view = a_view("a", nodes=(replace(self.NODE, **fields),))  # type: ignore[arg-type]  # fields of a node
        return pool_of(view, sizes_of(view), placed).free.get("n", (0, 0, 0, ""))

    def test_the_ledger_and_ray_itself_count(self) -> None:
        assert self.free() == (8, 8, 0, "")
        assert self.free({"n": (3, 1, 0, "")}, {"n": (1, 1, 0, "")}, {"gone": (1, 1, 0, "")}) == (4, 6, 0, "")
        ray = Resources(cpu=5, memory_gib=2)
        assert self.free({"n": (1, 1, 0, "")}, available=ray) == (5, 2, 0, "")
        assert self.free({"n": (4, 1, 0, "")}, available=ray) == (4, 2, 0, "")

    def test_a_dead_node_has_nothing_and_the_head_counts_like_any(self) -> None:
        assert self.free(alive=False) == (0, 0, 0, "")
        assert self.free(is_head=True, group=HEAD_GROUP, total=Resources(memory_gib=4)) == (0, 4, 0, "")

    def test_equal_stays_equal_after_fractions(self) -> None:
        one = NodePool({"a": (1, 1, 0, ""), "b": (0.7, 1, 0, "")})
        for _ in range(3):
            one.take({"a": (0.1, 0, 0, "")})
        assert list(one.alike) == [(0.7, 1, 0, "")]


class TestNeverFits:
    VIEW = a_view("a", nodes=(), planned=(NodeShape(group="w", size=Resources(cpu=4, memory_gib=8), count=3),))

    def test_a_stopped_cluster_is_as_large_as_it_is_configured(self) -> None:
        assert never_fits(self.VIEW, gang((3, 4))) is None
        reason = never_fits(self.VIEW, gang((4, 1)))
        assert reason is not None
        assert (reason.code, reason.params) == (
            "GANG_NEVER_FITS",
            {"target": "a", "fitting": 3, "wanted": 4, "strategy": "STRICT_SPREAD"},
        )

    def test_a_task_larger_than_any_node(self) -> None:
        reason = match_cluster(self.VIEW, gang((1, 5)))
        assert reason is not None
        assert reason.params["fitting"] == 0

    @pytest.mark.parametrize(("alive", "count", "fits"), [(2, 3, True), (2, 4, False), (4, 4, True)])
    def test_a_lost_worker_comes_back(self, alive: int, count: int, fits: bool) -> None:
        there = tuple(
            Node(id=f"n{at}", ip="", group="w", alive=True, is_head=False, total=Resources(cpu=4, memory_gib=8))
            for at in range(alive)
        )
        assert (never_fits(replace(self.VIEW, nodes=there), gang((count, 4))) is None) == fits

    def test_nodes_it_may_still_add_count(self) -> None:
        more = replace(self.VIEW, growth=(NodeShape(group="w", size=Resources(cpu=8, memory_gib=8), count=1),))
        assert never_fits(more, gang((4, 4))) is None
        assert never_fits(more, gang((1, 8))) is None


class TestSpared:
    """What others may have while nobody can tell when a gang will start."""

    SIZES = dict.fromkeys("ab", amounts_of(Resources(cpu=8, memory_gib=8))) | {
        "c": amounts_of(Resources(cpu=2, memory_gib=8))
    }
    FREE = NodePool({"a": (8, 8, 0, ""), "b": (3, 8, 0, ""), "c": (2, 8, 0, "")})

    def test_a_node_that_could_be_its_own_is_kept_as_far_as_its_largest_task_goes(self) -> None:
        assert spared(self.FREE, self.SIZES, gang((2, 6), (1, 4))).free == {
            "a": (2, 8, 0, ""),
            "b": (0, 8, 0, ""),
            "c": (2, 8, 0, ""),
        }

    def test_whole_if_several_tasks_may_come_together(self) -> None:
        assert spared(self.FREE, self.SIZES, gang((2, 3), strategy=PACK)).free == {
            "a": (0, 0, 0, ""),
            "b": (0, 0, 0, ""),
            "c": (2, 8, 0, ""),
        }
