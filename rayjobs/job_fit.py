"""Whether the tasks of a job could ever have their places, on targets that are empty and all they can be (R4, R5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster_groups.decide.place import gang_never_fits
from cluster_groups.decide.quota import granted
from cluster_groups.model.cluster import Cluster, ClusterKind, NodeShape, NodeSpec, WorkerGroup, first_counts
from cluster_groups.model.demand import Demand
from kernel.errors import Problem, pointer_to, problem
from kernel.resources import SLACK, Resources, total
from rayjobs.model.job import JobSpec, Requirements, TaskGroup

_DRIVER_KEYS = {"cpu": "entrypoint_num_cpus", "memory_gib": "entrypoint_memory", "gpu": "entrypoint_num_gpus"}
"""By which a driver asks Ray for what requirements do not say."""


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


def check_plain_fit(spec: JobSpec, demand: Demand, name: str, clusters: Sequence[Cluster]) -> list[Problem]:
    """Of a job without task groups: what it takes may lie on any nodes, the head's memory among it.

    `clusters` are those that `name` may mean, any of which will do. Of one that was never seen nobody knows.
    """
    sizes = [_all_of(cluster) for cluster in clusters]
    if not sizes or not all(any(size.flat().values()) for size in sizes):
        return []
    lacking, largest = min(
        ((_lacking(size, demand.resources, demand.gpu_types), size) for size in sizes), key=_how_close
    )
    if not lacking:
        return []
    asked, needs = lacking[0], spec.requirements or Requirements()
    is_required = getattr(needs, asked) > _there(largest, demand.gpu_types)[asked]
    pointer = f"/requirements/{asked}" if is_required else pointer_to("advanced_parameters", _DRIVER_KEYS[asked])
    wanted = {name: amount for name, amount in demand.resources.flat().items() if amount}
    return [problem("JOB_NEVER_FITS", pointer, target=name, wanted=wanted, largest=largest.flat())]


def own_nodes(spec: JobSpec, quota: Resources) -> Target:
    """Of the cluster an on-demand job gets while nobody else uses its resource group, by the field they stand in."""
    counts = granted(spec.head or NodeSpec(), spec.worker_groups, quota)
    return Target(name="worker_groups", clusters=[_shapes(spec.worker_groups, counts)])


def first_nodes(spec: JobSpec) -> Target:
    """Those that the job's own cluster starts with."""
    return Target(name="worker_groups", clusters=[_shapes(spec.worker_groups, first_counts(spec.worker_groups))])


def nodes_of(cluster: Cluster) -> list[NodeShape]:
    """As many as it may have; of somebody else's cluster what was last seen of it, which may be nothing."""
    if cluster.kind is ClusterKind.MANAGED:
        return _shapes(cluster.worker_groups, {one.name: one.max_instances for one in cluster.worker_groups})
    return [NodeShape(group=node.group or "", size=node.total, count=1) for node in cluster.nodes if node.alive]


def _all_of(cluster: Cluster) -> Resources:
    workers = total(shape.size * shape.count for shape in nodes_of(cluster))
    if cluster.kind is not ClusterKind.MANAGED or cluster.head is None:
        return workers
    return workers + Resources(memory_gib=cluster.head.memory_gib)


def _shapes(worker_groups: Iterable[WorkerGroup], counts: Mapping[str, int]) -> list[NodeShape]:
    """The head runs no tasks."""
    return [NodeShape(group=one.name, size=one.resources, count=counts[one.name]) for one in worker_groups]


def _check_task(group: TaskGroup, demand: Demand, target: Target, pointer: str) -> Problem | None:
    sizes = [shape.size for shapes in target.clusters for shape in shapes]
    gpu_types = (group.gpu_type,) if group.gpu_type else demand.gpu_types
    lacking, largest = min(((_lacking(size, group.resources, gpu_types), size) for size in sizes), key=_how_close)
    if not lacking:
        return None
    wanted = {name: amount for name, amount in group.resources.flat().items() if amount}
    params = {"task_group": group.name, "wanted": wanted, "target": target.name, "largest": largest.flat()}
    return problem("TASK_TOO_LARGE", f"{pointer}/{lacking[0]}", **params)


def _lacking(size: Resources, wanted: Resources, gpu_types: Sequence[str]) -> list[str]:
    """Fields that ask for more than there is."""
    asked = {"cpu": wanted.cpu, "memory_gib": wanted.memory_gib, "gpu": sum(wanted.gpu.values())}
    return [name for name, amount in _there(size, gpu_types).items() if asked[name] > amount + SLACK]


def _there(size: Resources, gpu_types: Sequence[str]) -> Mapping[str, float]:
    """One run or task takes accelerators of one type: the most there are of those it accepts."""
    cards = max((size.gpu.get(name, 0) for name in gpu_types or size.gpu), default=0)
    return {"cpu": size.cpu, "memory_gib": size.memory_gib, "gpu": cards}


def _how_close(found: tuple[list[str], Resources]) -> tuple[float, ...]:
    lacking, size = found
    return (len(lacking), -sum(size.gpu.values()), -size.cpu, -size.memory_gib)
