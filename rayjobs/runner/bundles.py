"""What a gang asks of Ray's scheduler, and how much of it there would be room for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .spec import GroupSpec

ACCELERATOR = "accelerator_type:"
_SHARE_OF_ACCELERATOR = 0.001
"""Nodes have one of it, however many GPUs: it tells the type, and everybody takes a little."""

Bundle = Mapping[str, float]


def bundles(groups: Sequence[GroupSpec]) -> list[Bundle]:
    """One a task, in the order of groups and tasks."""
    return [bundle(group) for group in groups for _ in range(group.tasks)]


def bundle(group: GroupSpec) -> Bundle:
    """Of each task of the group."""
    amounts = {"CPU": group.cpu, "memory": group.memory_bytes, "GPU": group.gpu}
    if group.gpu and group.gpu_type:
        amounts[ACCELERATOR + group.gpu_type] = _SHARE_OF_ACCELERATOR
    return {name: amount for name, amount in amounts.items() if amount}


def missing(wanted: Sequence[Bundle], free: Sequence[Bundle], strategy: str) -> int:
    """How many of the bundles have no room on nodes with `free` resources; at least 1, for together they have none."""
    nodes = [dict(node) for node in sorted(free, key=_size)]
    if strategy == "STRICT_PACK":
        unplaced = min((_unplaced(wanted, [node], is_spread=False) for node in nodes), default=len(wanted))
    else:
        unplaced = _unplaced(wanted, nodes, is_spread=strategy == "STRICT_SPREAD")
    return max(1, unplaced)


def _unplaced(wanted: Sequence[Bundle], nodes: list[dict[str, float]], *, is_spread: bool) -> int:
    """The largest first, each on the smallest node that will do; of spread ones none shares its node."""
    unplaced = 0
    for bundle in sorted(wanted, key=_size, reverse=True):
        node = next((node for node in nodes if all(node.get(name, 0) >= bundle[name] for name in bundle)), None)
        if node is None:
            unplaced += 1
        elif is_spread:
            nodes.remove(node)
        else:
            node.update({name: node[name] - amount for name, amount in bundle.items()})
    return unplaced


def _size(amounts: Bundle) -> tuple[float, ...]:
    return tuple(amounts.get(name, 0) for name in ("GPU", "CPU", "memory"))
