"""Snapshots of runs, clusters and attempts with sane defaults, for tests of decisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup, Member
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import ResourceGroup
from kernel.resources import Resources
from rayjobs.model.job import RunMode
from rayjobs.model.run import AttemptState, RunState
from rayjobs.snapshot import AttemptView, WaitingRun

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def a_run(number: int = 1, **fields: Any) -> WaitingRun:
    """Run `number` waits for cluster c1 since `number` seconds after noon."""
    mode = fields.setdefault("run_mode", RunMode.CLUSTER)
    target = {
        RunMode.CLUSTER: {"cluster": "c1", "cluster_id": "clu_c1", "queue": "cluster/c1"},
        RunMode.CLUSTER_GROUP: {"cluster_group": "g1", "queue": "cluster_group/g1"},
        RunMode.ON_DEMAND: {"resource_group": "default", "queue": "resource_group/default"},
    }[mode]
    defaults: dict[str, Any] = {
        "id": f"run_{number:04d}",
        "version": 1,
        "state": RunState.SUBMITTED,
        "enqueued_at": NOW + timedelta(seconds=number),
        "demand": Demand(),
        **target,
    }
    return WaitingRun(**defaults | fields)


def a_cluster(name: str = "c1", **fields: Any) -> ClusterView:
    cpu = fields.pop("cpu", 4)
    node = Node(id="n1", ip="127.0.0.2", group="w1", alive=True, is_head=False, total=Resources(cpu=cpu, memory_gib=8))
    defaults: dict[str, Any] = {
        "id": f"clu_{name}",
        "name": name,
        "kind": ClusterKind.MANAGED,
        "state": ClusterState.RUNNING,
        "health": HealthStatus.HEALTHY,
        "nodes": (node,),
    }
    return ClusterView(**defaults | fields)


def a_group(*clusters: str, **fields: Any) -> ClusterGroup:
    members = tuple(Member(cluster=name, order=order) for order, name in enumerate(clusters))
    defaults: dict[str, Any] = {
        "id": "grp_g1", "name": "g1", "revision": 1, "members": members, "created_at": NOW, "created_by": "ann",
    }  # fmt: skip
    return ClusterGroup(**defaults | fields)


def a_resource_group(**fields: Any) -> ResourceGroup:
    defaults: dict[str, Any] = {
        "id": "rgp_default",
        "name": "default",
        "resource_package": "default",
        "quota": Resources(cpu=8, memory_gib=32),
        "created_at": NOW,
        "created_by": "ann",
    }
    return ResourceGroup(**defaults | fields)


def an_attempt(state: AttemptState = AttemptState.RUNNING, **fields: Any) -> AttemptView:
    defaults: dict[str, Any] = {
        "id": "run_0001-a1",
        "version": 1,
        "epoch": 1,
        "state": state,
        "state_since": NOW,
        "created_at": NOW,
        "posted_at": NOW,
        "started_at": None,
        "lost_since": None,
        "driver_address": None,
        "end": None,
        "run_id": "run_0001",
        "run_version": 1,
        "run_state": RunState.STARTING,
        "run_mode": RunMode.CLUSTER,
        "stop_code": None,
        "start_timeout_s": 1800,
        "stop_grace_s": 10,
        "max_runtime_s": None,
        "lost_timeout_s": 900,
        "cluster_id": "clu_c1",
        "cluster_name": "c1",
        "cluster": a_cluster(),
        "log_complete": False,
    }
    return AttemptView(**defaults | fields)
