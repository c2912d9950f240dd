"""Whether amounts fit: a group's quota in its package, a cluster in what its group has left."""

from collections.abc import Iterable, Sequence

from cluster_groups.model.cluster import NodeSpec, WorkerGroup
from cluster_groups.model.quota import GroupConfig, GroupKind
from kernel.resources import SLACK, Resources, total

Shortage = dict[str, tuple[float, float]]
"""By dimension: what is asked, and what there is."""


def beyond_package(capacity: Resources, group: GroupConfig, others: Iterable[GroupConfig]) -> Shortage:
    """Exclusive groups may not add up to more than their package; each shared one must fit alone (api.md §13)."""
    if group.kind is GroupKind.SHARED:
        return group.quota.beyond(capacity)
    taken = total(other.quota for other in others if other.kind is GroupKind.EXCLUSIVE)
    return group.quota.beyond(capacity - taken)


def beyond_quota(needed: Resources, used: Resources, quota: Resources) -> dict[str, dict[str, float]]:
    """By dimension that is short: needed, used and max."""
    in_use, most = used.flat(), quota.flat()
    return {
        name: {"needed": amount, "used": in_use.get(name, 0), "max": most.get(name, 0)}
        for name, (amount, _) in needed.beyond(quota - used).items()
    }


def granted(head: NodeSpec, worker_groups: Sequence[WorkerGroup], room: Resources) -> dict[str, int]:
    """How many nodes of each worker group fit: from its least on as many more as there is room for, in order (A19)."""
    least = total([head.resources, *(group.resources * group.min_instances for group in worker_groups)])
    left = (room - least).flat()
    counts = {}
    for group in worker_groups:
        sizes = {name: amount for name, amount in group.resources.flat().items() if amount > 0}
        fitting = min((int((left.get(name, 0) + SLACK) // amount) for name, amount in sizes.items()), default=0)
        more = max(0, min(group.max_instances - group.min_instances, fitting))
        counts[group.name] = group.min_instances + more
        for name, amount in sizes.items():
            left[name] = left.get(name, 0) - amount * more
    return counts
