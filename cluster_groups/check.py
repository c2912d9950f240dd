"""What makes clusters and resource pools acceptable in themselves; whether what they name exists, the services ask."""

import re
import socket
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from cluster_groups.check_parameters import Given, check_on_backend, check_on_nodes
from cluster_groups.model.cluster import (
    HEAD_GROUP,
    LOCAL,
    ON_DEMAND_PREFIX,
    ClusterConfig,
    ClusterKind,
    NodeSpec,
    WorkerGroup,
)
from cluster_groups.model.quota import GroupConfig, PackageConfig, QueueSettings
from kernel.errors import Problem, pointer_to, problem
from kernel.labels import is_label_key, is_label_value
from runtime_envs.advanced.check import check_parameters
from runtime_envs.advanced.protected import Place
from runtime_envs.volumes.check import check_mounts

MIN_CPU = 1
MIN_MEMORY_GIB = 2
MAX_WORKER_GROUPS = 7
MAX_INSTANCES = 1000
MAX_AMOUNT = 1_000_000
MIN_AGING_S = 10

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_NODE_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,19}")
GPU_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,511}")

_ONLY_MANAGED = (
    "backend", "image", "head", "worker_groups", "advanced_parameters", "autostart", "idle_stop_s",
)  # fmt: skip
_ONLY_ATTACHED = ("address", "credential", "allow_open")


def check_name(name: str) -> list[Problem]:
    return [] if _NAME.fullmatch(name) else [problem("INVALID_NAME", "/name", name=name)]


def check_cluster(config: ClusterConfig) -> list[Problem]:
    managed = config.kind is ClusterKind.MANAGED
    foreign = _ONLY_ATTACHED if managed else _ONLY_MANAGED
    return [
        *check_name(config.name),
        *([problem("NAME_RESERVED", "/name", name=config.name)] if config.name.startswith(ON_DEMAND_PREFIX) else []),
        *(
            problem("FIELD_NOT_FOR_KIND", f"/{name}", field=name, kind=str(config.kind))
            for name in foreign
            if getattr(config, name)
        ),
        *(_check_managed(config) if managed else _check_address(config.address)),
        *check_mounts(config.volumes, "/volumes"),
        *check_labels(config.labels, "/labels"),
        *check_bounds("", {"idle_stop_s": config.idle_stop_s, "max_runs": config.max_runs}, minimum=1),
    ]


def check_nodes(head: NodeSpec | None, worker_groups: Sequence[WorkerGroup], pointer_prefix: str = "") -> list[Problem]:
    """One head and its worker groups (R53-R57, A25), of a cluster or of an on-demand job."""
    at = f"{pointer_prefix}/worker_groups"
    head_problems = [problem("FIELD_REQUIRED", f"{pointer_prefix}/head", field="head")]
    if head is not None:
        head_problems = _check_node(head, f"{pointer_prefix}/head")
    return [
        *head_problems,
        *_check_count(worker_groups, at),
        *(found for index, group in enumerate(worker_groups) for found in _check_group(group, f"{at}/{index}")),
        *_check_unique(worker_groups, at),
    ]


def warnings_about(config: ClusterConfig) -> list[Problem]:
    open_to_all = [problem("JOB_API_MAY_BE_OPEN", "/allow_open")] if config.allow_open else []
    return [*warnings_about_image(config.image, config.backend), *open_to_all]


def warnings_about_image(image: str | None, backend: str | None) -> list[Problem]:
    """Local processes run in the service's own Python, whatever image is named (R52)."""
    return [problem("IMAGE_NOT_USED", "/image", image=image, backend=backend)] if image and backend == LOCAL else []


def check_labels(labels: Mapping[str, str], pointer: str) -> list[Problem]:
    """The syntax Kubernetes and Ray share."""
    return [
        problem("LABEL_INVALID", pointer + pointer_to(key), key=key)
        for key, value in labels.items()
        if not (is_label_key(key) and is_label_value(value))
    ]


def check_package(config: PackageConfig) -> list[Problem]:
    at = "/capacity"
    counts = {name: gpu.count for name, gpu in config.gpu.items()}
    amounts = {"cpu": config.cpu, "memory_gib": config.memory_gib}
    return [*check_name(config.name), *_check_amounts(at, amounts, counts)]


def check_group(config: GroupConfig) -> list[Problem]:
    quota = config.quota
    amounts = {"cpu": quota.cpu, "memory_gib": quota.memory_gib}
    return [
        *check_name(config.name),
        *_check_amounts("/quota", amounts, quota.gpu),
        *_check_queue(config.queue),
    ]


def check_bounds(
    pointer: str, values: Mapping[str, float | None], *, minimum: int = 0, maximum: int = MAX_AMOUNT
) -> list[Problem]:
    bounds = {"minimum": minimum, "maximum": maximum}
    return [
        problem("VALUE_OUT_OF_RANGE", pointer + pointer_to(name), field=name, value=value, **bounds)
        for name, value in values.items()
        if value is not None and not minimum <= value <= maximum
    ]


def _check_managed(config: ClusterConfig) -> list[Problem]:
    found = check_nodes(config.head, config.worker_groups)
    if config.image and not _IMAGE.fullmatch(config.image):
        found.append(problem("IMAGE_INVALID", "/image", maximum=512))
    wrong = check_parameters(config.advanced_parameters, Place.CLUSTER)
    found += wrong or check_on_backend(config.advanced_parameters, config.backend)
    if config.head is not None and not wrong:
        found += check_on_nodes(
            Given(
                parameters=config.advanced_parameters,
                head=config.head,
                worker_groups=config.worker_groups,
                mounts=config.volumes,
            )
        )
    return found


def _check_address(address: str | None) -> list[Problem]:
    """Muster itself fetches from there, and sends a credential along (requirements §4.3).

    Unlike elsewhere, loopback and private addresses are allowed: that is where Ray clusters are. Names are not
    resolved here, as they may mean something else tomorrow.
    """
    if not address:
        return [problem("FIELD_REQUIRED", "/address", field="address")]
    try:
        parts = urlsplit(address)
        fine = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        fine = False
    if not fine or parts.username or parts.password or parts.query or parts.fragment or re.search(r"\s", address):
        return [problem("ADDRESS_INVALID", "/address", address=address)]
    ip = _literal(parts.hostname or "")
    if ip and (ip.is_link_local or ip.is_multicast or ip.is_unspecified):  # clouds serve their metadata link-locally
        return [problem("ADDRESS_NOT_ALLOWED", "/address", address=address)]
    return []


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    """What the resolver takes for an IP address, 0xA9FEA9FE and 169.16689662 included; None for a name."""
    try:
        ip = ip_address(host)
    except ValueError:
        try:
            return IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, IPv6Address) else ip


def _check_count(groups: Sequence[WorkerGroup], pointer: str) -> list[Problem]:
    if 1 <= len(groups) <= MAX_WORKER_GROUPS:
        return []
    return [problem("WORKER_GROUP_COUNT", pointer, count=len(groups), minimum=1, maximum=MAX_WORKER_GROUPS)]


def _check_group(group: WorkerGroup, pointer: str) -> list[Problem]:
    found = _check_node(group, pointer)
    if not _NODE_GROUP.fullmatch(group.name):
        found.append(problem("NODE_GROUP_NAME_INVALID", f"{pointer}/name", name=group.name))
    if not 0 <= group.min_instances <= group.max_instances:
        found.append(_bad_range(group, f"{pointer}/min_instances"))
    elif not 1 <= group.max_instances <= MAX_INSTANCES:
        found.append(_bad_range(group, f"{pointer}/max_instances"))
    return found


def _bad_range(group: WorkerGroup, pointer: str) -> Problem:
    least, most = group.min_instances, group.max_instances
    return problem("INSTANCE_RANGE_INVALID", pointer, min_instances=least, max_instances=most, limit=MAX_INSTANCES)


def _check_unique(groups: Sequence[WorkerGroup], pointer: str) -> list[Problem]:
    seen = {HEAD_GROUP}
    found = []
    for index, group in enumerate(groups):
        if group.name.casefold() in seen:
            found.append(problem("DUPLICATE_NODE_GROUP", f"{pointer}/{index}/name", name=group.name))
        seen.add(group.name.casefold())
    return found


def _check_node(node: NodeSpec, pointer: str) -> list[Problem]:
    found: list[Problem] = []
    for name, amount, least, code in (
        ("cpu", node.cpu, MIN_CPU, "NODE_CPU_TOO_SMALL"),
        ("memory_gib", node.memory_gib, MIN_MEMORY_GIB, "NODE_MEMORY_TOO_SMALL"),
    ):
        too_small = [problem(code, f"{pointer}/{name}", value=amount, minimum=least)] if amount < least else []
        found += too_small or check_bounds(pointer, {name: amount}, minimum=least)
    if node.gpu_type is not None and node.gpu == 0:
        found.append(problem("GPU_COUNT_REQUIRED", f"{pointer}/gpu", gpu_type=node.gpu_type))
    if node.gpu_type is not None and not GPU_TYPE.fullmatch(node.gpu_type):
        found.append(problem("GPU_TYPE_INVALID", f"{pointer}/gpu_type", gpu_type=node.gpu_type))
    return [*found, *check_bounds(pointer, {"gpu": node.gpu}), *check_labels(node.labels, f"{pointer}/labels")]


def _check_amounts(pointer: str, amounts: Mapping[str, float], gpus: Mapping[str, float]) -> list[Problem]:
    return [
        *check_bounds(pointer, amounts),
        *check_bounds(f"{pointer}/gpu", gpus),
        *(
            problem("GPU_TYPE_INVALID", f"{pointer}/gpu{pointer_to(name)}", gpu_type=name)
            for name in gpus
            if not GPU_TYPE.fullmatch(name)
        ),
    ]


def _check_queue(queue: QueueSettings) -> list[Problem]:
    return [
        *check_bounds("/queue", {"aging_s": queue.aging_s}, minimum=MIN_AGING_S),
        *check_bounds("/queue", {"reserve_after_s": queue.reserve_after_s}),
    ]
