"""Task groups of a multi-task job: what makes them acceptable in themselves, and the worker groups made for them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from cluster_groups.check import GPU_TYPE, MAX_INSTANCES, MAX_WORKER_GROUPS, MIN_CPU, MIN_MEMORY_GIB
from cluster_groups.model.cluster import HEAD_GROUP, WorkerGroup
from kernel.errors import Problem, pointer_to, problem
from rayjobs.model.job import FIRST_TASK_GROUP, JobSpec, TaskGroup

MAX_TASK_GROUPS = 50
MAX_TASKS = MAX_INSTANCES
"""Of all groups together: each may have a node of its own."""
OFF = -1
"""Switches a threshold off (A6)."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}")
_SIZES: Mapping[str, tuple[float, float]] = {"cpu": (0.01, 4096), "memory_gib": (0.01, 65_536), "gpu": (0, 1024)}
"""Least and most of one task; Ray counts in steps of 0.0001, so that less would come to nothing."""
_THRESHOLDS = ("min_succeeded", "min_failed")
_UNSET = {one.name: one.default for one in fields(JobSpec)}


def with_name(groups: tuple[TaskGroup, ...]) -> tuple[TaskGroup, ...]:
    """Of several each has to be named by whoever knows what it is for (R26)."""
    if len(groups) == 1 and not groups[0].name:
        return (replace(groups[0], name=FIRST_TASK_GROUP),)
    return groups


def check_task_groups(groups: Sequence[TaskGroup]) -> list[Problem]:
    """R26-R32, A6, A12; the commands are `job_command`'s, and whether the tasks fit anywhere `job_fit`'s."""
    if len(groups) > MAX_TASK_GROUPS:
        return [problem("TOO_MANY_TASK_GROUPS", "/task_groups", count=len(groups), maximum=MAX_TASK_GROUPS)]
    found = [one for index, group in enumerate(groups) for one in _check_group(group, f"/task_groups/{index}")]
    found += _check_unique(groups)
    tasks = sum(group.count for group in groups)
    if not found and tasks > MAX_TASKS:
        found.append(problem("TOO_MANY_TASKS", "/task_groups", count=tasks, maximum=MAX_TASKS))
    return found


def warnings_about_gang(spec: JobSpec) -> list[Problem]:
    """What is kept and does nothing: thresholds of a job with one task in all (R32, A5), gang settings without one."""
    if not spec.is_gang:
        return [
            problem("GANG_SETTING_NOT_USED", f"/{name}", field=name)
            for name in ("placement_strategy", "gang_timeout_s")
            if getattr(spec, name) != _UNSET[name]
        ]
    if sum(group.count for group in spec.task_groups) > 1:
        return []
    return [
        problem("THRESHOLD_NOT_USED", pointer_to("task_groups", index, name), field=name)
        for index, group in enumerate(spec.task_groups)
        for name in _THRESHOLDS
        if getattr(group, name) is not None
    ]


def derive_worker_groups(groups: Sequence[TaskGroup]) -> tuple[WorkerGroup, ...]:
    """One for each task group, of as many nodes as it has tasks; none if a cluster cannot have so many groups."""
    if len(groups) > MAX_WORKER_GROUPS:
        return ()
    taken = {HEAD_GROUP}
    derived = []
    for group in groups:
        name = next(name for name in _node_group_names(group.name) if name not in taken)
        taken.add(name)
        derived.append(_worker_group(name, group))
    return tuple(derived)


def fixed_differences(groups: Sequence[TaskGroup], wanted: Sequence[TaskGroup]) -> list[str]:
    """Places where an edit asks for other groups than there are; only their commands may change (A27)."""
    if len(groups) != len(wanted):
        return ["task_groups"]
    names = [one.name for one in fields(TaskGroup) if one.name != "entrypoint"]
    return [
        f"task_groups/{index}/{name}"
        for index, (before, after) in enumerate(zip(groups, wanted, strict=True))
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]


def _check_group(group: TaskGroup, pointer: str) -> Iterator[Problem]:
    if not group.name:
        yield problem("TASK_GROUP_NAME_REQUIRED", f"{pointer}/name")
    elif not _NAME.fullmatch(group.name):
        yield problem("TASK_GROUP_NAME_INVALID", f"{pointer}/name", name=group.name)
    if not 1 <= group.count <= MAX_TASKS:
        yield problem("TASK_COUNT_OUT_OF_RANGE", f"{pointer}/count", minimum=1, maximum=MAX_TASKS)
    for name, (least, most) in _SIZES.items():
        if not least <= getattr(group, name) <= most:
            yield problem("TASK_SIZE_OUT_OF_RANGE", f"{pointer}/{name}", field=name, minimum=least, maximum=most)
    if group.gpu_type is not None and group.gpu == 0:
        yield problem("GPU_COUNT_REQUIRED", f"{pointer}/gpu", gpu_type=group.gpu_type)
    if group.gpu_type is not None and not GPU_TYPE.fullmatch(group.gpu_type):
        yield problem("GPU_TYPE_INVALID", f"{pointer}/gpu_type", gpu_type=group.gpu_type)
    for name in _THRESHOLDS:
        value = getattr(group, name)
        if value not in {None, OFF} and not 1 <= value <= group.count:
            yield problem("THRESHOLD_OUT_OF_RANGE", f"{pointer}/{name}", field=name, value=value, count=group.count)


def _check_unique(groups: Sequence[TaskGroup]) -> Iterator[Problem]:
    """The same name, or one that is the same in the names of hosts and variables made from it."""
    names: set[str] = set()
    folded: dict[str, str] = {}
    for index, group in enumerate(groups):
        if not group.name:
            continue
        pointer = pointer_to("task_groups", index, "name")
        if group.name in names:
            yield problem("DUPLICATE_TASK_GROUP", pointer, name=group.name)
        elif other := folded.get(_folded(group.name)):
            yield problem("TASK_GROUP_NAMES_COLLIDE", pointer, name=group.name, other=other)
        names.add(group.name)
        folded.setdefault(_folded(group.name), group.name)


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")


def _node_group_names(name: str) -> Iterator[str]:
    """The name as Kubernetes takes it, then the same with a number, within the length of names."""
    stem = _folded(name).strip("-") or "tasks"
    yield stem
    for number in range(2, MAX_WORKER_GROUPS + 3):
        yield f"{stem[:17]}-{number}"


def _worker_group(name: str, group: TaskGroup) -> WorkerGroup:
    return WorkerGroup(
        name=name,
        cpu=max(MIN_CPU, math.ceil(group.cpu)),
        memory_gib=max(MIN_MEMORY_GIB, group.memory_gib),
        gpu=group.gpu,
        gpu_type=group.gpu_type,
        min_instances=group.count,
        max_instances=group.count,
    )
