"""Advanced parameters of a cluster, seen together with its nodes, its volumes and its backend."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from cluster_groups.model.cluster import HEAD_GROUP, LOCAL, NodeSpec, WorkerGroup
from kernel.errors import Problem, problem
from runtime_envs.advanced.catalogue import WORKER_PORTS, Scope
from runtime_envs.advanced.check import at, read
from runtime_envs.volumes.model import Mount

MIN_PORTS = 100
"""Every worker process of a node takes one."""

_STORE, _SPILLING = "object-store-memory", "object-spilling-directory"
_FIRST_PORT, _LAST_PORT = "min-worker-port", "max-worker-port"


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Parameters that each passed the check alone, and what they are given with."""

    parameters: Mapping[str, str]
    head: NodeSpec
    worker_groups: Sequence[WorkerGroup]
    mounts: Sequence[Mount] = field(default=())

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        return {HEAD_GROUP: self.head, **{group.name: group for group in self.worker_groups}}


def check_on_nodes(given: Given) -> list[Problem]:
    values = read(given.parameters, Scope.NODE)
    return [
        *_check_store(values.get(_STORE), given),
        *_check_spilling(values.get(_SPILLING), given.mounts),
        *_check_ports(values.get(_FIRST_PORT), values.get(_LAST_PORT)),
        *_check_labels(values.get("labels", {}), given),
    ]


def check_on_backend(parameters: Mapping[str, str], backend: str | None) -> list[Problem]:
    """What a backend cannot do is refused, not passed over.

    Local clusters do not grow, and their nodes have no volumes before a run brings some.
    """
    if backend != LOCAL:
        return []
    foreign = [*read(parameters, Scope.AUTOSCALER), *(read(parameters, Scope.NODE).keys() & {_SPILLING})]
    return [problem("ADVANCED_PARAM_NOT_ON_BACKEND", at(key), key=key, backend=backend) for key in foreign]


def _check_store(wanted_bytes: int | None, given: Given) -> Iterator[Problem]:
    smallest = min(given.nodes, key=lambda name: given.nodes[name].memory_gib)
    most_bytes = int(given.nodes[smallest].memory_gib * 2**29)
    if wanted_bytes is not None and wanted_bytes > most_bytes:
        yield problem("OBJECT_STORE_TOO_LARGE", at(_STORE), maximum=most_bytes, node_group=smallest)


def _check_spilling(folder: str | None, mounts: Sequence[Mount]) -> Iterator[Problem]:
    if folder is None:
        return
    writable = [mount.mount_path for mount in mounts if not mount.read_only]
    if not any(PurePosixPath(folder).is_relative_to(path) for path in writable):
        yield problem("SPILLING_NOT_IN_VOLUME", at(_SPILLING), folder=folder)


def _check_ports(first: int | None, last: int | None) -> Iterator[Problem]:
    if first is None and last is None:
        return
    if first is None or last is None or last - first + 1 < MIN_PORTS:
        missing = _FIRST_PORT if last is None else _LAST_PORT
        bounds = {"minimum": WORKER_PORTS.start, "maximum": WORKER_PORTS.stop - 1, "count": MIN_PORTS}
        yield problem("WORKER_PORTS_INVALID", at(missing), **bounds)


def _check_labels(labels: Mapping[str, str], given: Given) -> Iterator[Problem]:
    """Those of a node's own form item stay what they are."""
    for name, node in given.nodes.items():
        item = "head.labels" if name == HEAD_GROUP else "worker_groups[].labels"
        if twice := sorted(labels.keys() & node.labels.keys()):
            yield problem("ADVANCED_PARAM_PROTECTED", at("labels"), key=f"labels {twice[0]}", form_item=item)
