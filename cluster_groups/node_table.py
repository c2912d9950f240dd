"""From what Ray's dashboard answers to nodes with resources. Pure, so that it is tested on answers once captured."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from cluster_groups.model.cluster import HEAD_GROUP, Node
from kernel.resources import ANY_GPU, Resources

GROUP_LABEL = "muster.io/group"
KUBERAY_GROUP_LABEL = "ray.io/node-group"
ACCELERATOR_LABEL = "ray.io/accelerator-type"
ACCELERATOR_RESOURCE = "accelerator_type:"
DEAD_SHOWN_FOR = timedelta(hours=1)
"""Ray lists dead nodes for ever."""

_AMOUNT = r"([0-9.]+)([KMGT]iB|B)?"
_USAGE_LINE = re.compile(
    rf"^{_AMOUNT}/{_AMOUNT} (?P<name>\S+)(?: \({_AMOUNT} used of {_AMOUNT} reserved in placement groups\))?$"
)
_BYTES = {None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def node_table(nodes: Mapping[str, Any], usage: Mapping[str, Any], now: datetime) -> tuple[Node, ...]:
    """`nodes` is `/api/v0/nodes?detail=true`, `usage` is `/nodes?view=summary` or empty where that is not served."""
    used_by_node = usage.get("data", {}).get("nodeLogicalResources") or {}
    rows = nodes["data"]["result"]["result"]
    return tuple(_node(row, used_by_node.get(row["node_id"])) for row in rows if _is_shown(row, now))


def _is_shown(row: Mapping[str, Any], now: datetime) -> bool:
    return _is_alive(row) or row["end_time_ms"] / 1000 > (now - DEAD_SHOWN_FOR).timestamp()


def _is_alive(row: Mapping[str, Any]) -> bool:
    return bool(row["state"] == "ALIVE")


def _node(row: Mapping[str, Any], usage_text: str | None) -> Node:
    labels = row["labels"] or {}
    amounts = row["resources_total"] or {}
    gpu_type = _gpu_type(labels, amounts)
    total = _resources(amounts, gpu_type)
    is_known = _is_alive(row) and usage_text is not None
    return Node(
        id=row["node_id"],
        ip=row["node_ip"],
        group=labels.get(GROUP_LABEL) or (HEAD_GROUP if row["is_head_node"] else labels.get(KUBERAY_GROUP_LABEL)),
        alive=_is_alive(row),
        is_head=row["is_head_node"],
        total=total,
        available=total - _resources(dict(_used(usage_text or "")), gpu_type) if is_known else None,
    )


def _gpu_type(labels: Mapping[str, str], amounts: Mapping[str, float]) -> str:
    named = (name.removeprefix(ACCELERATOR_RESOURCE) for name in amounts if name.startswith(ACCELERATOR_RESOURCE))
    return labels.get(ACCELERATOR_LABEL) or next(named, ANY_GPU)


def _resources(amounts: Mapping[str, float], gpu_type: str) -> Resources:
    gpus = amounts.get("GPU", 0)
    return Resources(
        cpu=amounts.get("CPU", 0),
        memory_gib=amounts.get("memory", 0) / 2**30,
        gpu={gpu_type: gpus} if gpus else {},
    )


def _used(text: str) -> Iterator[tuple[str, float]]:
    """What is taken of each resource: reserved for a placement group is taken, whether a task uses it or not."""
    for line in text.splitlines():
        found = _USAGE_LINE.match(line)
        if not found:
            continue
        used, _total, in_groups, reserved = (float(found[at] or 0) * _BYTES[found[at + 1]] for at in (1, 3, 6, 8))
        yield found["name"], used - in_groups + reserved
