"""The node table from answers captured on Ray 2.60, with a placement group of 1 CPU, 1 GPU and 500 MB on the worker."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cluster_groups.node_table import node_table
from kernel.resources import ANY_GPU, Resources

NOW = datetime(2026, 11, 30, 16, tzinfo=UTC)
HEAD = {
    "node_id": "71af",
    "node_ip": "127.0.0.2",
    "is_head_node": True,
    "state": "ALIVE",
    "state_message": None,
    "node_name": "127.0.0.2",
    "resources_total": {
        "node:127.0.0.2": 1.0,
        "node:__internal_head__": 1.0,
        "memory": 2147483648.0,
        "object_store_memory": 80000000.0,
    },
    "labels": {"muster.io/group": "head", "ray.io/node-id": "71af"},
    "start_time_ms": 1796053812582,
    "end_time_ms": 0,
}
WORKER = {
    "node_id": "d9b5",
    "node_ip": "127.0.0.3",
    "is_head_node": False,
    "state": "ALIVE",
    "state_message": None,
    "node_name": "127.0.0.3",
    "resources_total": {
        "node:127.0.0.3": 1.0,
        "object_store_memory": 100000000.0,
        "memory": 2147483648.0,
        "accelerator_type:A100_80G": 1.0,
        "GPU": 2.0,
        "CPU": 2.0,
    },
    "labels": {
        "muster.io/group": "gpu_a",
        "rack_no": "r_1",
        "ray.io/accelerator-type": "A100_80G",
        "ray.io/node-id": "d9b5",
    },
    "start_time_ms": 1796053963830,
    "end_time_ms": 0,
}
USAGE = {
    "result": True,
    "data": {
        "summary": [],
        "nodeLogicalResources": {
            "71af": "0B/2.00GiB memory\n0B/76.29MiB object_store_memory",
            "d9b5": (
                "1.0/2.0 CPU (0.0 used of 1.0 reserved in placement groups)\n"
                "0.5/2.0 GPU (0.0 used of 1.0 reserved in placement groups)\n"
                "0.0/1.0 accelerator_type:A100_80G\n"
                "0B/2.00GiB memory (0B used of 512.00MiB reserved in placement groups)\n"
                "0B/95.37MiB object_store_memory"
            ),
        },
    },
}


def nodes(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"result": True, "msg": "", "data": {"result": {"total": len(rows), "result": list(rows)}}}


def test_totals_groups_and_heads() -> None:
    head, worker = node_table(nodes(HEAD, WORKER), USAGE, NOW)
    assert (head.id, head.ip, head.group, head.is_head, head.alive) == ("71af", "127.0.0.2", "head", True, True)
    assert head.total == Resources(memory_gib=2)
    assert (worker.group, worker.is_head) == ("gpu_a", False)
    assert worker.total == Resources(cpu=2, memory_gib=2, gpu={"A100_80G": 2})


def test_reserved_for_a_placement_group_is_not_free_though_unused() -> None:
    head, worker = node_table(nodes(HEAD, WORKER), USAGE, NOW)
    assert head.available == head.total
    assert worker.available == Resources(cpu=0, memory_gib=1.5, gpu={"A100_80G": 0.5})


def test_used_inside_a_placement_group_counts_once() -> None:
    text = "1.5/2.0 CPU (0.5 used of 1.0 reserved in placement groups)"
    usage = {"data": {"nodeLogicalResources": {"d9b5": text}}}
    (worker,) = node_table(nodes(WORKER), usage, NOW)
    assert worker.available
    assert worker.available.cpu == 0


@pytest.mark.parametrize("usage", [{}, {"data": {}}, {"data": {"nodeLogicalResources": {}}}])
def test_free_is_unknown_where_no_monitor_tells(usage: dict[str, Any]) -> None:
    assert [node.available for node in node_table(nodes(HEAD, WORKER), usage, NOW)] == [None, None]


def test_gpu_type_comes_from_label_then_resource_then_nobody() -> None:
    by_resource = {**WORKER, "labels": {}}
    unnamed = {**WORKER, "labels": {}, "resources_total": {"GPU": 1.0}}
    types = [list(node.total.gpu) for node in node_table(nodes(WORKER, by_resource, unnamed), {}, NOW)]
    assert types == [["A100_80G"], ["A100_80G"], [ANY_GPU]]


def test_groups_of_clusters_muster_did_not_make() -> None:
    rows = [
        {**HEAD, "labels": {}},
        {**WORKER, "labels": {"ray.io/node-group": "small"}},
        {**WORKER, "labels": {}},
    ]
    assert [node.group for node in node_table(nodes(*rows), {}, NOW)] == ["head", "small", None]


def test_the_dead_are_shown_for_an_hour_and_have_nothing_free() -> None:
    def dead(minutes_ago: int) -> dict[str, Any]:
        return {**WORKER, "state": "DEAD", "end_time_ms": int(NOW.timestamp() - 60 * minutes_ago) * 1000}

    table = node_table(nodes(HEAD, dead(59), dead(61)), USAGE, NOW)
    assert [(node.alive, node.available is None) for node in table] == [(True, False), (False, True)]
