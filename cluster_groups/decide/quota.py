"""Whether amounts fit: a group's quota in its package, a cluster in what its group has left."""

from collections.abc import Iterable, Mapping

from cluster_groups.model.quota import GroupConfig, GroupKind
from kernel.resources import Resources, total

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


def use_by_group(clusters: Iterable[tuple[str, Resources]]) -> Mapping[str, Resources]:
    """Sums of (resource group, amount)."""
    sums: dict[str, Resources] = {}
    for group, amount in clusters:
        sums[group] = sums.get(group, Resources()) + amount
    return sums
