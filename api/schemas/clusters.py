"""Clusters: what is asked for, what is shown (api.md §5). Defaults repeat those of the values they become."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from api.schemas.base import In, Lax, Resource, WarningOut, given, warnings_out
from api.texts import Language, say
from cluster_groups.check import warnings_about
from cluster_groups.model.cluster import Cluster, ClusterConfig, ClusterKind, ClusterState, Node
from cluster_groups.model.health import Health, HealthStatus
from kernel.reasons import Reason
from kernel.resources import Resources
from rayjobs.snapshot import Load


class NodeIn(In):
    cpu: float = 2
    memory_gib: float = 4
    gpu: int = 0
    gpu_type: str | None = None
    labels: dict[str, str] = {}


class WorkerIn(NodeIn):
    name: str
    min_instances: int = 1
    max_instances: int = 1


class MountIn(In):
    volume: str
    mount_path: str
    sub_path: str = ""
    read_only: bool = False


class ClusterEdit(In):
    name: str = ""
    kind: Lax[ClusterKind] = ClusterKind.MANAGED
    backend: str | None = None
    resource_package: str | None = None
    resource_group: str | None = None
    image: str | None = None
    head: NodeIn | None = None
    worker_groups: list[WorkerIn] = []
    volumes: list[MountIn] = []
    advanced_parameters: dict[str, str] = {}
    labels: dict[str, str] = {}
    address: str | None = None
    credential: str | None = None
    allow_open: bool = False
    autostart: bool = False
    idle_stop_s: int | None = None
    max_runs: int | None = None

    def changes(self) -> dict[str, Any]:
        return given(self, ClusterConfig)


class ClusterCreate(ClusterEdit):
    name: str

    def config(self) -> ClusterConfig:
        return ClusterConfig(**{"kind": ClusterKind.MANAGED, **self.changes()})


class Force(In):
    """`force` ends the live runs of the cluster, which refuse its stop otherwise."""

    force: bool = False


class NodeSpecOut(BaseModel):
    cpu: float
    memory_gib: float
    gpu: int
    gpu_type: str | None
    labels: dict[str, str]


class WorkerOut(NodeSpecOut):
    name: str
    min_instances: int
    max_instances: int


class MountOut(BaseModel):
    volume: str
    mount_path: str
    sub_path: str = ""
    read_only: bool = False


class AmountsOut(BaseModel):
    cpu: float
    memory_gib: float
    gpu: dict[str, float]

    @classmethod
    def of(cls, amounts: Resources) -> "AmountsOut":
        return cls(cpu=amounts.cpu, memory_gib=amounts.memory_gib, gpu=dict(amounts.gpu))


class NodeOut(BaseModel):
    id: str
    ip: str
    group: str | None
    alive: bool
    total: AmountsOut
    available: AmountsOut | None

    @classmethod
    def of(cls, node: Node) -> "NodeOut":
        available = AmountsOut.of(node.available) if node.available is not None else None
        total = AmountsOut.of(node.total)
        return cls(id=node.id, ip=node.ip, group=node.group, alive=node.alive, total=total, available=available)


class LoadOut(BaseModel):
    """What Muster's runs hold of it."""

    runs: int
    starting: int
    used: AmountsOut

    @classmethod
    def of(cls, load: Load) -> "LoadOut":
        return cls(runs=load.drivers, starting=load.starting, used=AmountsOut.of(load.used))


class ReasonOut(BaseModel):
    code: str
    detail: str
    advice: str | None
    owner: str
    params: dict[str, Any]

    @classmethod
    def of(cls, reason: Reason | None, language: Language) -> "ReasonOut | None":
        if reason is None:
            return None
        words = say(reason.code, reason.params, language)
        return cls(
            code=reason.code, detail=words.detail, advice=words.advice, owner=reason.owner, params=dict(reason.params)
        )


class HealthCheckOut(BaseModel):
    """The latest look at the cluster, then what it is held out for although that passed."""

    ok: bool
    at: datetime
    failure: ReasonOut | None


class ClusterHealthOut(BaseModel):
    status: HealthStatus
    since: datetime
    checks: list[HealthCheckOut]

    @classmethod
    def of(cls, health: Health, language: Language) -> "ClusterHealthOut":
        checks = []
        if health.last_result_at is not None:
            failure = ReasonOut.of(health.failure, language)
            checks.append(HealthCheckOut(ok=failure is None, at=health.last_result_at, failure=failure))
        if health.because is not None and health.because != health.failure:
            checks.append(HealthCheckOut(ok=False, at=health.since, failure=ReasonOut.of(health.because, language)))
        return cls(status=health.status, since=health.since, checks=checks)


class ClusterOut(Resource):
    name: str
    revision: int
    kind: ClusterKind
    backend: str | None
    resource_package: str | None
    resource_group: str | None
    image: str | None
    head: NodeSpecOut | None
    worker_groups: list[WorkerOut]
    volumes: list[MountOut]
    advanced_parameters: dict[str, str]
    labels: dict[str, str]
    address: str | None
    credential: str | None
    allow_open: bool
    autostart: bool
    idle_stop_s: int | None
    max_runs: int | None
    cordoned: bool
    on_demand_run: str | None
    state: ClusterState
    state_since: datetime
    state_reason: ReasonOut | None
    health: ClusterHealthOut
    nodes: list[NodeOut]
    nodes_up: int
    nodes_wanted: int
    load: LoadOut
    ray_version: str | None
    python_version: str | None
    can_call_back: bool | None
    endpoint: str
    """Path of its Ray Jobs endpoint here: no other way leads to a managed cluster."""
    warnings: list[WarningOut] = []

    @classmethod
    def of(cls, cluster: Cluster, load: Load, language: Language) -> "ClusterOut":
        made = {
            "state_reason": ReasonOut.of(cluster.state_reason, language),
            "health": ClusterHealthOut.of(cluster.health, language),
            "nodes": [NodeOut.of(node) for node in cluster.nodes],
            "load": LoadOut.of(load),
            "endpoint": f"/ray/clusters/{cluster.name}",
            "warnings": warnings_out(warnings_about(cluster), language),
        }
        return cls.model_validate({**asdict(cluster), **made})
