"""Values of clusters and groups with sane defaults."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cluster_groups.model.cluster import (
    Cluster,
    ClusterConfig,
    ClusterKind,
    ClusterState,
    Node,
    NodeSpec,
    WorkerGroup,
)
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.group import ClusterGroup, Member
from cluster_groups.model.health import Health, HealthStatus
from kernel.resources import Resources

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def a_config(name: str = "c1", **fields: Any) -> ClusterConfig:
    """One head and one worker: 3 cores and 6 GiB."""
    managed: dict[str, Any] = {
        "kind": ClusterKind.MANAGED,
        "head": NodeSpec(cpu=1, memory_gib=2),
        "worker_groups": (WorkerGroup(name="w1", cpu=2, memory_gib=4),),
    }
    return ClusterConfig(name=name, **(managed | fields))


def an_attached_config(name: str = "a1", **fields: Any) -> ClusterConfig:
    """With a credential that the world of `cluster_world` has."""
    address = "http://127.0.0.1:8265"
    defaults: dict[str, Any] = {"kind": ClusterKind.ATTACHED, "address": address, "credential": "tok"}
    return ClusterConfig(name=name, **(defaults | fields))


def a_cluster(state: ClusterState = ClusterState.RUNNING, **fields: Any) -> Cluster:
    config = a_config()
    stored = Cluster(
        name=config.name,
        kind=config.kind,
        backend="local",
        head=config.head,
        worker_groups=config.worker_groups,
        id="clu_1",
        created_at=NOW,
        created_by="ops",
        revision=1,
        state=state,
        state_since=NOW,
        state_reason=None,
        cordoned=False,
        on_demand_run=None,
        health=Health(since=NOW),
        nodes=(),
        nodes_up=0,
        nodes_wanted=0,
        ray_version=None,
        python_version=None,
        can_call_back=None,
    )
    return replace(stored, **fields)


def a_node(*, is_head: bool = False, alive: bool = True, **total: Any) -> Node:
    resources = Resources(**({"cpu": 2, "memory_gib": 4} | total))
    return Node(id="n", ip="127.0.0.1", group=None, alive=alive, is_head=is_head, total=resources)


def a_view(name: str, **fields: Any) -> ClusterView:
    healthy: dict[str, Any] = {
        "id": f"clu_{name}",
        "kind": ClusterKind.MANAGED,
        "state": ClusterState.RUNNING,
        "health": HealthStatus.HEALTHY,
        "nodes": (a_node(),),
        "ray_version": "2.60.0",
        "python_version": "3.11.7",
    }
    return ClusterView(name=name, **(healthy | fields))


def a_group(*members: Member | str, **fields: Any) -> ClusterGroup:
    made = [Member(cluster=one, order=index) if isinstance(one, str) else one for index, one in enumerate(members)]
    return ClusterGroup(
        id="grp_1", name="g1", revision=1, members=tuple(made), created_at=NOW, created_by="ops", **fields
    )
