"""How many nodes of each worker group a cluster is granted (A19)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.decide.quota import granted
from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from kernel.resources import Resources, total

HEAD = NodeSpec(cpu=1, memory_gib=2)


def a_group(name: str, least: int, most: int, **size: float) -> WorkerGroup:
    return WorkerGroup(**{"name": name, "min_instances": least, "max_instances": most, "memory_gib": 2, **size})


@pytest.mark.parametrize(
    ("cpu", "counts"),
    [
        (100, {"a": 4, "b": 3}),
        (17, {"a": 4, "b": 2}),
        (16, {"a": 4, "b": 1}),
        (9, {"a": 2, "b": 1}),
        (10, {"a": 2, "b": 1}),
        (7, {"a": 1, "b": 1}),
        (0, {"a": 1, "b": 1}),
    ],
)
def test_as_many_as_fit_the_first_group_first(cpu: float, counts: dict[str, int]) -> None:
    groups = [a_group("a", 1, 4, cpu=2), a_group("b", 1, 3, cpu=4)]
    assert granted(HEAD, groups, Resources(cpu=cpu, memory_gib=1000)) == counts


def test_every_dimension_limits() -> None:
    group = a_group("a", 0, 9, cpu=1, gpu=2, gpu_type="H100")
    assert granted(HEAD, [group], Resources(cpu=99, memory_gib=99, gpu={"H100": 5})) == {"a": 2}
    assert granted(HEAD, [group], Resources(cpu=99, memory_gib=99)) == {"a": 0}
    assert granted(HEAD, [group], Resources(cpu=99, memory_gib=8, gpu={"H100": 99})) == {"a": 3}


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 80),
)
def test_never_more_than_there_is(shapes: list[tuple[int, int, int]], cpu: int) -> None:
    groups = [a_group(str(at), least, least + more, cpu=size) for at, (least, more, size) in enumerate(shapes)]
    room = Resources(cpu=cpu, memory_gib=1000)
    counts = granted(HEAD, groups, room)
    least = total([HEAD.resources, *(one.resources * one.min_instances for one in groups)])
    given_ = total([HEAD.resources, *(one.resources * counts[one.name] for one in groups)])
    assert all(one.min_instances <= counts[one.name] <= one.max_instances for one in groups)
    assert given_.cpu <= max(least.cpu, room.cpu)
    for one in groups:  # nobody could have one more
        more = given_ + one.resources
        assert counts[one.name] == one.max_instances or more.beyond(room)
