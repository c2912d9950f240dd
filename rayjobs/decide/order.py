"""The order in which waiting runs are looked at. Total, so that replay gives the same plan."""

from collections.abc import Collection, Mapping
from datetime import datetime

from cluster_groups.model.quota import QueueSettings, ResourceGroup
from rayjobs.model.job import DEFAULT_PRIORITY, RunMode
from rayjobs.snapshot import AdmissionSnapshot, WaitingRun

HIGHEST = 9
DEFAULT_GROUP = "default"

OrderKey = tuple[bool, int, datetime, str]


def order_key(run: WaitingRun, queue: QueueSettings, now: datetime) -> OrderKey:
    """The run that capacity is held for stays first until it starts; then 9 first, equals by age and then id."""
    is_first = queue.reserve_after_s is not None and run.held_on is not None
    return (not is_first, -effective_priority(run.priority, run.enqueued_at, queue, now), run.enqueued_at, run.id)


def effective_priority(priority: int | None, enqueued_at: datetime, queue: QueueSettings, now: datetime) -> int:
    """One more for each `aging_s` waited, up to 9; no priority orders as 5 (A15, A16)."""
    waited_s = max(0.0, (now - enqueued_at).total_seconds())
    return min(HIGHEST, (DEFAULT_PRIORITY if priority is None else priority) + int(waited_s // queue.aging_s))


def settings_of_queue(run: WaitingRun, snapshot: AdmissionSnapshot) -> QueueSettings:
    """Those of its resource group or its cluster's; of a cluster group those of the one that all its members are in.

    None, or several: those of `default` (api.md §13).
    """
    return settings_of_groups(_resource_groups(run, snapshot), snapshot.resource_groups)


def settings_of_groups(names: Collection[str | None], groups: Mapping[str, ResourceGroup]) -> QueueSettings:
    (name,) = names if len(names) == 1 else (None,)
    group = groups.get(name or DEFAULT_GROUP) or groups.get(DEFAULT_GROUP)
    return group.queue if group else QueueSettings()


def _resource_groups(run: WaitingRun, snapshot: AdmissionSnapshot) -> set[str | None]:
    if run.run_mode is RunMode.ON_DEMAND:
        return {run.resource_group}
    if run.run_mode is RunMode.CLUSTER:
        view = snapshot.clusters.get(run.cluster_id or "")
        return {view.resource_group} if view else set()
    group = snapshot.groups.get(run.cluster_group or "")
    members = {member.cluster for member in group.members} if group else set()
    return {view.resource_group for view in snapshot.clusters.values() if view.name in members}
