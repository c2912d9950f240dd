"""What makes the definition of a job acceptable in itself; whether what it names exists, `job_references` asks."""

import re
from collections.abc import Mapping
from dataclasses import replace

from cluster_groups.check import GPU_TYPE, MAX_WORKER_GROUPS, check_labels, check_nodes
from cluster_groups.check_parameters import Given, check_on_nodes
from cluster_groups.model.cluster import NodeSpec
from kernel.errors import Problem, pointer_to, problem
from kernel.text import has_control
from rayjobs.advanced import PLACES, submission_options
from rayjobs.job_command import check_commands, check_size
from rayjobs.job_name import check_name
from rayjobs.model.job import DEFAULT_PRIORITY, TAG_KEY, JobSpec, Origin, Requirements, Retry, RunMode
from rayjobs.model.run import EndClass
from rayjobs.task_groups import check_task_groups, derive_worker_groups, with_name
from runtime_envs.advanced.check import check_parameters
from runtime_envs.check import IMAGE_URI, check_runtime_env
from runtime_envs.check_uri import UriPolicy
from runtime_envs.volumes.check import check_mounts

MAX_DESCRIPTION = 2000
MAX_TAGS = 50
MAX_TAG_VALUE = 256
MAX_IMAGE = 512
MAX_SECONDS = 2**31 - 1
MAX_AMOUNT = 1_000_000
RETRYABLE = (EndClass.PLATFORM, EndClass.ENVIRONMENT, EndClass.PLACEMENT, EndClass.LOST, EndClass.USER)

_VERSION = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,2}[A-Za-z0-9.+-]{0,16}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]*")

_MODES: Mapping[str, frozenset[RunMode]] = {
    **dict.fromkeys(
        ("resource_package", "resource_group", "priority", "image", "head", "worker_groups"),
        frozenset({RunMode.ON_DEMAND}),
    ),
    "cluster": frozenset({RunMode.CLUSTER}),
    "cluster_group": frozenset({RunMode.CLUSTER_GROUP}),
    "requirements": frozenset({RunMode.CLUSTER, RunMode.CLUSTER_GROUP}),
}
"""Fields that only some run modes have (R42-R44, R58)."""

_REQUIRED: Mapping[RunMode, Mapping[str, str]] = {
    RunMode.ON_DEMAND: {
        "resource_package": "RESOURCE_PACKAGE_REQUIRED",
        "resource_group": "RESOURCE_GROUP_REQUIRED",
    },
    RunMode.CLUSTER: {"cluster": "CLUSTER_REQUIRED"},
    RunMode.CLUSTER_GROUP: {"cluster_group": "CLUSTER_GROUP_REQUIRED"},
}

_DRIVER_ITEMS: Mapping[str, str] = {
    "entrypoint_num_cpus": "task_groups[].cpu",
    "entrypoint_num_gpus": "task_groups[].gpu",
    "entrypoint_memory": "task_groups[].memory_gib",
    "entrypoint_resources": "task_groups[]",
    "entrypoint_label_selector": "task_groups[]",
}
"""What sizes and places the driver of a plain job; that of a gang is Muster's, and its tasks have fields for it."""

_GANG_ITEMS: Mapping[str, str] = {
    "requirements.cpu": "task_groups[].cpu",
    "requirements.gpu": "task_groups[].gpu",
    "requirements.memory_gib": "task_groups[].memory_gib",
    "entrypoint": "task_groups[].entrypoint",
}
"""Form items of a plain job, and what a multi-task job has in their place."""


def with_defaults(spec: JobSpec) -> JobSpec:
    """The only task group has a name; on_demand has, without being asked, what the others have from their cluster."""
    spec = replace(spec, task_groups=with_name(spec.task_groups))
    if spec.run_mode is not RunMode.ON_DEMAND:
        return spec
    return replace(
        spec,
        priority=DEFAULT_PRIORITY if spec.priority is None else spec.priority,
        head=spec.head or NodeSpec(),
        worker_groups=spec.worker_groups or derive_worker_groups(spec.task_groups),
    )


def check_job(spec: JobSpec, uris: UriPolicy, origin: Origin = Origin.API) -> list[Problem]:
    """Every rule the definition breaks, each with its own code and place. Nobody chose the name of a hidden job."""
    name = check_name(spec.name) if origin is Origin.API else None
    found = [
        *([name] if name else []),
        *_check_description(spec),
        *_check_tags(spec.tags),
        *_check_target(spec),
        *_check_nodes(spec),
        *check_task_groups(spec.task_groups),
        *check_commands(spec, origin),
        *_check_limits(spec),
        *_check_retry(spec.retry),
        *check_requirements(spec),
        *check_mounts(spec.mounts, "/mounts"),
        *_check_runtime_env(spec, uris, origin),
        *_check_advanced(spec),
    ]
    return found or check_size(spec)


def has_own_nodes(spec: JobSpec) -> bool:
    """Whether somebody chose its worker groups; those made from its task groups need no check of their own."""
    return not spec.is_gang or spec.worker_groups != derive_worker_groups(spec.task_groups)


def _check_description(spec: JobSpec) -> list[Problem]:
    if len(spec.description) > MAX_DESCRIPTION:
        return [problem("DESCRIPTION_TOO_LONG", "/description", maximum=MAX_DESCRIPTION)]
    if has_control(spec.description, allowed="\n\r\t"):
        return [problem("DESCRIPTION_INVALID", "/description")]
    return []


def _check_tags(tags: Mapping[str, str]) -> list[Problem]:
    if len(tags) > MAX_TAGS:
        return [problem("TOO_MANY_TAGS", "/tags", count=len(tags), maximum=MAX_TAGS)]
    found = []
    for key, value in tags.items():
        if not TAG_KEY.fullmatch(key):
            found.append(problem("TAG_KEY_INVALID", pointer_to("tags", key), key=key))
        elif len(value) > MAX_TAG_VALUE or has_control(value):
            found.append(problem("TAG_INVALID", pointer_to("tags", key), key=key, maximum=MAX_TAG_VALUE))
    return found


def _check_target(spec: JobSpec) -> list[Problem]:
    found = [
        problem("FIELD_NOT_FOR_MODE", f"/{name}", field=name, run_mode=str(spec.run_mode))
        for name, modes in _MODES.items()
        if spec.run_mode not in modes and getattr(spec, name) not in (None, ())
    ]
    if spec.cluster is not None and spec.cluster_group is not None:
        pointer = "/cluster" if spec.run_mode is RunMode.CLUSTER_GROUP else "/cluster_group"
        found = [one for one in found if one.pointer not in {"/cluster", "/cluster_group"}]
        found.append(problem("CLUSTER_AND_GROUP_CONFLICT", pointer))
    found += [problem(code, f"/{name}") for name, code in _REQUIRED[spec.run_mode].items() if not getattr(spec, name)]
    return found


def _check_nodes(spec: JobSpec) -> list[Problem]:
    if spec.run_mode is not RunMode.ON_DEMAND:
        return []
    found = check_nodes(spec.head or NodeSpec(), spec.worker_groups, "")
    if not has_own_nodes(spec):
        found = [one for one in found if one.pointer and one.pointer.startswith("/head")]
        if not spec.worker_groups:
            limit = {"count": len(spec.task_groups), "maximum": MAX_WORKER_GROUPS}
            found.append(problem("WORKER_GROUPS_REQUIRED", "/worker_groups", **limit))
    if spec.image is not None and not (_IMAGE.fullmatch(spec.image) and len(spec.image) <= MAX_IMAGE):
        found.append(problem("IMAGE_INVALID", "/image", maximum=MAX_IMAGE))
    return found


def _check_limits(spec: JobSpec) -> list[Problem]:
    bounds: tuple[tuple[str, int | None, str, int, int], ...] = (
        ("priority", spec.priority, "PRIORITY_OUT_OF_RANGE", 1, 9),
        ("gang_timeout_s", spec.gang_timeout_s, "GANG_TIMEOUT_OUT_OF_RANGE", 10, 86_400),
        ("start_timeout_s", spec.start_timeout_s, "START_TIMEOUT_OUT_OF_RANGE", 10, 86_400),
        ("stop_grace_s", spec.stop_grace_s, "STOP_GRACE_OUT_OF_RANGE", 0, 600),
        ("max_wait_s", spec.max_wait_s, "MAX_WAIT_OUT_OF_RANGE", 1, MAX_SECONDS),
        ("max_runtime_s", spec.max_runtime_s, "MAX_RUNTIME_OUT_OF_RANGE", 1, MAX_SECONDS),
    )
    return [
        problem(code, f"/{name}", minimum=minimum, maximum=maximum)
        for name, value, code, minimum, maximum in bounds
        if value is not None and not minimum <= value <= maximum
    ]


def _check_retry(retry: Retry) -> list[Problem]:
    found = [
        problem("RETRY_CLASS_UNKNOWN", f"/retry/on/{index}", end_class=name, allowed=[str(one) for one in RETRYABLE])
        for index, name in enumerate(retry.on)
        if name not in RETRYABLE
    ]
    if not 1 <= retry.max_attempts <= 10:
        found.append(problem("MAX_ATTEMPTS_OUT_OF_RANGE", "/retry/max_attempts", minimum=1, maximum=10))
    return found


def check_requirements(spec: JobSpec) -> list[Problem]:
    """The tasks of a gang are what it takes; what is asked beside them is which clusters may have it."""
    needs = spec.requirements or Requirements()
    found = [
        problem("REQUIREMENT_NOT_FOR_TASK_GROUPS", f"/requirements/{name}", field=name)
        for name in ("cpu", "memory_gib", "gpu")
        if spec.is_gang and getattr(needs, name)
    ]
    found += [
        problem("REQUIREMENT_OUT_OF_RANGE", f"/requirements/{name}", minimum=0, maximum=MAX_AMOUNT)
        for name, amount in (("cpu", needs.cpu), ("memory_gib", needs.memory_gib), ("gpu", needs.gpu))
        if not 0 <= amount <= MAX_AMOUNT
    ]
    found += [
        problem("GPU_TYPE_INVALID", f"/requirements/gpu_types/{index}", gpu_type=name)
        for index, name in enumerate(needs.gpu_types)
        if not GPU_TYPE.fullmatch(name)
    ]
    found += check_labels(needs.labels, "/requirements/labels")
    found += [
        problem("VERSION_INVALID", f"/requirements/{name}", version=version)
        for name, version in (("ray_version", needs.ray_version), ("python_version", needs.python_version))
        if version is not None and not _VERSION.fullmatch(version)
    ]
    return found


def _check_runtime_env(spec: JobSpec, uris: UriPolicy, origin: Origin) -> list[Problem]:
    found = check_runtime_env(spec.runtime_env, uris, from_ray_client=origin is Origin.RAY_JOBS)
    found = [replace(one, pointer=f"/runtime_env{one.pointer or ''}") for one in found]
    if not found and IMAGE_URI in spec.runtime_env:  # all that a container would not see
        beside = [name for name in ("package", "task_groups", "mounts") if getattr(spec, name)]
        found += [problem("RUNTIME_ENV_CONFLICT", f"/{name}", keys=[IMAGE_URI, name]) for name in beside]
    return found


def _check_advanced(spec: JobSpec) -> list[Problem]:
    found = check_parameters(spec.advanced_parameters, PLACES[spec.run_mode])
    if found:
        return [_of_gang(one) for one in found] if spec.is_gang else found
    if spec.run_mode is RunMode.ON_DEMAND and (found := check_on_nodes(_given(spec))):
        return found
    wanted = submission_options(spec.advanced_parameters).fields
    if spec.is_gang:
        return [
            problem(
                "ADVANCED_PARAM_NOT_FOR_TASK_GROUPS", pointer_to("advanced_parameters", key), key=key, form_item=item
            )
            for key, item in _DRIVER_ITEMS.items()
            if key in wanted
        ]
    if spec.run_mode is not RunMode.ON_DEMAND:
        return []
    asked = {name: wanted.get(f"entrypoint_{name}", 0) for name in ("num_cpus", "num_gpus", "memory")}
    custom = wanted.get("entrypoint_resources", {})
    nodes = (replace(spec.head or NodeSpec(), cpu=0), *spec.worker_groups)  # the head's cores are kept for Ray itself
    if not custom and any(_holds(node, asked) for node in nodes):
        return []
    return [problem("DRIVER_NEVER_FITS", "/advanced_parameters", **asked, resources=custom)]


def _given(spec: JobSpec) -> Given:
    return Given(
        parameters=spec.advanced_parameters,
        head=spec.head or NodeSpec(),
        worker_groups=spec.worker_groups,
        mounts=spec.mounts,
    )


def _of_gang(found: Problem) -> Problem:
    item = found.params.get("form_item")
    return replace(found, params={**found.params, "form_item": _GANG_ITEMS.get(item, item)}) if item else found


def _holds(node: NodeSpec, asked: Mapping[str, float]) -> bool:
    room = {"num_cpus": node.cpu, "num_gpus": node.gpu, "memory": node.memory_gib * 2**30}
    return all(asked[name] <= room[name] for name in asked)
