"""Whether the tasks of a job could ever have their places, on targets that are empty and all they can be (R4, R5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster_groups.decide.place import gang_never_fits
from cluster_groups.decide.quota import granted
from cluster_groups.model.cluster import Cluster, ClusterKind, NodeShape, NodeSpec, WorkerGroup
from cluster_groups.model.demand import Demand
from kernel.errors import Problem, problem
from kernel.resources import Resources
from rayjobs.model.job import JobSpec, TaskGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What people call it, and what each cluster it may mean can have: at least one node each."""

    name: str
    clusters: Sequence[Sequence[NodeShape]]


def check_fit(groups: Sequence[TaskGroup], demand: Demand, target: Target) -> list[Problem]:
    """`demand` is that of all the groups together."""
    if not target.clusters:
        return []
    too_large = [
        found
        for index, group in enumerate(groups)
        if (found := _check_task(group, demand, target, f"/task_groups/{index}"))
    ]
    if too_large:
        return too_large
    reasons = [gang_never_fits(target.name, shapes, demand) for shapes in target.clusters]
    if None in reasons:
        return []
    best = max((reason.params for reason in reasons if reason), key=lambda params: params["fitting"])
    return [problem("GANG_NEVER_FITS", "/task_groups", **best)]


def own_nodes(spec: JobSpec, quota: Resources) -> Target:
    """Of the cluster an on-demand job gets while nobody else uses its resource group, by the field they stand in."""
    counts = granted(spec.head or NodeSpec(), spec.worker_groups, quota)
    return Target(name="worker_groups", clusters=[_shapes(spec.worker_groups, counts)])


def first_nodes(spec: JobSpec) -> Target:
    """Those that the job's own cluster starts with."""
    counts = {one.name: one.min_instances for one in spec.worker_groups}
    return Target(name="worker_groups", clusters=[_shapes(spec.worker_groups, counts)])


def nodes_of(cluster: Cluster) -> list[NodeShape]:
    """As many as it may have; of somebody else's cluster what was last seen of it, which may be nothing."""
    if cluster.kind is ClusterKind.MANAGED:
        return _shapes(cluster.worker_groups, {one.name: one.max_instances for one in cluster.worker_groups})
    return [NodeShape(group=node.group or "", size=node.total, count=1) for node in cluster.nodes if node.alive]


def _shapes(worker_groups: Iterable[WorkerGroup], counts: Mapping[str, int]) -> list[NodeShape]:
    """The head runs no tasks."""
    return [NodeShape(group=one.name, size=one.resources, count=counts[one.name]) for one in worker_groups]


def _check_task(group: TaskGroup, demand: Demand, target: Target, pointer: str) -> Problem | None:
    sizes = [shape.size for shapes in target.clusters for shape in shapes]
    lacking, largest = min(((_lacking(size, group, demand), size) for size in sizes), key=_how_close)
    if not lacking:
        return None
    wanted = {name: amount for name, amount in group.resources.flat().items() if amount}
    params = {"task_group": group.name, "wanted": wanted, "target": target.name, "largest": largest.flat()}
    return problem("TASK_TOO_LARGE", f"{pointer}/{lacking[0]}", **params)


def _lacking(size: Resources, group: TaskGroup, demand: Demand) -> list[str]:
    """Fields of the group that ask for more than such a node has."""
    accepted = (group.gpu_type,) if group.gpu_type else demand.gpu_types or tuple(size.gpu)
    cards = max((size.gpu.get(name, 0) for name in accepted), default=0)
    there = {"cpu": size.cpu, "memory_gib": size.memory_gib, "gpu": cards}
    return [name for name, amount in there.items() if getattr(group, name) > amount]


def _how_close(found: tuple[list[str], Resources]) -> tuple[float, ...]:
    lacking, size = found
    return (len(lacking), -sum(size.gpu.values()), -size.cpu, -size.memory_gib)
