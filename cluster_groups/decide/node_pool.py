"""What is free on the nodes of one cluster; those with the same are kept together, as there may be thousands."""

from collections.abc import Iterable, Mapping

from cluster_groups.model.demand import ClusterView
from kernel.resources import Resources

Amounts = tuple[float, float, float, str]
"""Cores, GiB of memory, accelerators and their type: a Ray node has accelerators of one type at most."""

_DIGITS = 6
"""Ray counts in steps of 0.0001; rounding keeps what is equal equal."""


def amounts_of(size: Resources) -> Amounts:
    if not size.gpu:
        return (size.cpu, size.memory_gib, 0, "")
    if len(size.gpu) == 1:
        ((kind, gpus),) = size.gpu.items()
        return (size.cpu, size.memory_gib, gpus, kind)
    kind = max(size.gpu, key=lambda name: (size.gpu[name], name))
    return (size.cpu, size.memory_gib, sum(size.gpu.values()), kind)


def resources_of(amounts: Amounts) -> Resources:
    cpu, memory_gib, gpus, kind = amounts
    return Resources(cpu=cpu, memory_gib=memory_gib, gpu={kind: gpus} if gpus else {})


class NodePool:
    """Made from what is free by node id; nodes that are alike are used in the order in which they are given."""

    __slots__ = ("alike", "free")

    def __init__(self, free: Mapping[str, Amounts]) -> None:
        self.free = dict(free)
        self.alike: dict[Amounts, dict[str, None]] = {}
        """Node ids by what is free there."""
        for node, amounts in free.items():
            self.alike.setdefault(amounts, {})[node] = None

    def take(self, placed: Mapping[str, Amounts]) -> None:
        for node, amounts in placed.items():
            before = self.free.get(node)
            if before is not None:  # else it is one that is still to be added
                self._set(node, before, _added(before, amounts, -1))

    def after(self, ended: Iterable[Mapping[str, Amounts]]) -> "NodePool":
        """Once these have given back what they had."""
        free = dict(self.free)
        for placed in ended:
            for node, amounts in placed.items():
                if node in free:
                    free[node] = _added(free[node], amounts, 1)
        return NodePool(free)

    def capped(self, other: "NodePool") -> "NodePool":
        """The smaller of both in each amount, of the nodes that are in both."""
        both = ((node, mine, other.free.get(node)) for node, mine in self.free.items())
        return NodePool({node: _smaller(mine, its) for node, mine, its in both if its is not None})

    def with_more(self, nodes: Mapping[str, Amounts]) -> "NodePool":
        return NodePool({**self.free, **nodes})

    def _set(self, node: str, before: Amounts, after: Amounts) -> None:
        there = self.alike[before]
        del there[node]
        if not there:
            del self.alike[before]
        self.free[node] = after
        self.alike.setdefault(after, {})[node] = None


def sizes_of(view: ClusterView) -> dict[str, Amounts]:
    """All there is on each node that is alive, the head among them: Ray uses it like any other if its resources fit."""
    alive = sorted((node for node in view.nodes if node.alive), key=lambda node: node.id)
    return {node.id: amounts_of(node.total) for node in alive}


def pool_of(view: ClusterView, sizes: Mapping[str, Amounts], placed: Iterable[Mapping[str, Amounts]]) -> NodePool:
    """Free is what neither Muster's ledger (`placed`: by gang, then by node) nor Ray itself counts as taken."""
    free = dict(sizes)
    for one in placed:
        for node, amounts in one.items():
            if node in free:
                free[node] = _added(free[node], amounts, -1)
    for one_node in view.nodes:
        if one_node.available is not None and one_node.id in free:
            free[one_node.id] = _smaller(free[one_node.id], amounts_of(one_node.available))
    return NodePool(free)


def _added(one: Amounts, other: Amounts, sign: int) -> Amounts:
    return (
        round(one[0] + sign * other[0], _DIGITS),
        round(one[1] + sign * other[1], _DIGITS),
        round(one[2] + sign * other[2], _DIGITS),
        one[3],
    )


def _smaller(one: Amounts, other: Amounts) -> Amounts:
    return (min(one[0], other[0]), min(one[1], other[1]), min(one[2], other[2]), one[3])
