"""Queries on clusters, and the way between their rows and values."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import and_, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import (
    HOLDS_RESOURCES,
    Cluster,
    ClusterConfig,
    ClusterKind,
    ClusterRef,
    ClusterState,
    Node,
)
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.health import Health
from cluster_groups.model.quota import ClusterUse
from cluster_groups.store.lookup import by_ref, filtered, one
from cluster_groups.tables import ClusterRow
from kernel.db import asked_once
from kernel.events import EventRow
from kernel.paging import Page, PageRequest, paginate
from kernel.reasons import Reason
from kernel.resources import Resources

SORTABLE = {"created_at": ClusterRow.created_at, "name": ClusterRow.name, "state": ClusterRow.state}
EDITED = "EDITED"
NODES = "NODES"
"""How many nodes are up has changed."""

_LIVE = ClusterRow.state != ClusterState.DELETED
_LISTED = and_(_LIVE, ClusterRow.on_demand_run.is_(None))
"""Those that people may refer to: none that was made for one run."""
_CLUSTER = TypeAdapter(Cluster)
_CONFIG = TypeAdapter(ClusterConfig)
_REASON = TypeAdapter(Reason)
_HEALTH = TypeAdapter(Health)
_NODES = TypeAdapter(tuple[Node, ...])


async def find(session: AsyncSession, ref: str, *, lock: bool = False) -> ClusterRow:
    return await by_ref(session, select(ClusterRow).where(_LIVE), ref, "cluster", lock=lock)


async def reference(session: AsyncSession, name: str) -> ClusterRef | None:
    statement = select(ClusterRow.id, ClusterRow.resource_package).where(_LIVE, ClusterRow.name == name)
    found = (await session.execute(statement)).one_or_none()
    return ClusterRef(id=found.id, resource_package=found.resource_package) if found else None


async def get(session: AsyncSession, cluster_id: str, *, lock: bool = False) -> ClusterRow | None:
    """Also a deleted one."""
    return await one(session, select(ClusterRow).where(ClusterRow.id == cluster_id), lock=lock)


async def page(session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest) -> Page[Cluster]:
    """Clusters made for one run are not listed."""
    statement = filtered(select(ClusterRow).where(_LISTED), filters)
    rows = await paginate(session, statement, request, sortable=SORTABLE, key=ClusterRow.id)
    return Page(items=[cluster_of(row) for row in rows.items], next_cursor=rows.next_cursor)


async def live(session: AsyncSession) -> list[Cluster]:
    return [cluster_of(row) for row in await session.scalars(select(ClusterRow).where(_LIVE))]


async def live_versions(session: AsyncSession, ids: Collection[str] | None) -> dict[str, int]:
    """By id, of all clusters or of these, those that are not deleted."""
    if ids is not None and not ids:
        return {}
    statement = select(ClusterRow.id, ClusterRow.version).where(_LIVE)
    if ids is not None:
        statement = statement.where(ClusterRow.id.in_(ids))
    return {row.id: row.version for row in await session.execute(statement)}


async def rows_of(session: AsyncSession, ids: Collection[str]) -> list[ClusterRow]:
    return list(await session.scalars(select(ClusterRow).where(ClusterRow.id.in_(ids)))) if ids else []


async def ids_in(session: AsyncSession, states: Sequence[ClusterState]) -> list[str]:
    return list(await session.scalars(select(ClusterRow.id).where(ClusterRow.state.in_(states))))


async def state_of_listed(session: AsyncSession, name: str) -> ClusterState | None:
    """None: there is no cluster of this name that people may refer to."""

    async def ask() -> ClusterState | None:
        found = await session.scalar(select(ClusterRow.state).where(_LISTED, ClusterRow.name == name))
        return ClusterState(found) if found else None

    return await asked_once(session, ("state of listed", name), ask)


async def listed_names(session: AsyncSession, names: Sequence[str]) -> set[str]:
    """Which of `names` are clusters that people may refer to."""
    return set(await session.scalars(select(ClusterRow.name).where(_LISTED, ClusterRow.name.in_(names))))


async def listed(session: AsyncSession, names: Sequence[str]) -> list[Cluster]:
    """Those of `names` that people may refer to."""
    rows = await session.scalars(select(ClusterRow).where(_LISTED, ClusterRow.name.in_(names)))
    return [cluster_of(row) for row in rows]


async def resource_groups_of(session: AsyncSession, names: Sequence[str]) -> set[str | None]:
    """Of those of `names` that people may refer to."""
    return set(await session.scalars(select(ClusterRow.resource_group).where(_LISTED, ClusterRow.name.in_(names))))


async def holding(session: AsyncSession) -> list[Cluster]:
    """The clusters that count against the quota of their resource groups (A19)."""
    statement = select(ClusterRow).where(
        ClusterRow.kind == ClusterKind.MANAGED,
        ClusterRow.resource_group.is_not(None),
        ClusterRow.state.in_(HOLDS_RESOURCES),
    )
    return [cluster_of(row) for row in await session.scalars(statement)]


async def uses(session: AsyncSession) -> dict[str, tuple[ClusterUse, ...]]:
    """What clusters hold of each resource group, at their minimum."""
    found: dict[str, list[ClusterUse]] = {}
    for cluster in await holding(session):
        use = ClusterUse(
            cluster=cluster.name,
            run=cluster.on_demand_run,
            amount=cluster.spec.minimum,
            is_starting=cluster.state is ClusterState.STARTING,
        )
        found.setdefault(cluster.resource_group or "", []).append(use)
    return {group: tuple(uses) for group, uses in found.items()}


async def of_group(session: AsyncSession, resource_group: str) -> list[str]:
    """Names of the live clusters that are in this resource group, whatever their state."""
    statement = select(ClusterRow.name).where(_LIVE, ClusterRow.resource_group == resource_group)
    return sorted(await session.scalars(statement))


async def last_edit(session: AsyncSession, row: ClusterRow) -> tuple[str, datetime]:
    """Who made its present revision, and when."""
    edits = select(EventRow).where(EventRow.target_id == row.id, EventRow.type == EDITED)
    event = await session.scalar(edits.order_by(EventRow.seq.desc()).limit(1))
    return (event.actor, event.at) if event else (row.created_by, row.created_at)


def cluster_of(row: ClusterRow) -> Cluster:
    values = {column.key: getattr(row, column.key) for column in ClusterRow.__table__.columns}
    if row.health is None:
        values["health"] = Health(since=row.state_since)
    return _CLUSTER.validate_python(values)


def view_of(cluster: Cluster) -> ClusterView:
    return ClusterView(
        id=cluster.id,
        name=cluster.name,
        kind=cluster.kind,
        state=cluster.state,
        health=cluster.health.status,
        cordoned=cluster.cordoned,
        resource_group=cluster.resource_group,
        labels=cluster.labels,
        nodes=cluster.nodes,
        maximum=cluster.spec.offered if cluster.head else Resources(),
        planned=cluster.spec.offered_nodes if cluster.head else (),
        # What Ray calls the memory of an attached head is a figure its owner chose, not the head's size.
        head_memory_gib=cluster.head.memory_gib if cluster.head else ClusterView.head_memory_gib,
        max_runs=cluster.max_runs,
        ray_version=cluster.ray_version,
        python_version=cluster.python_version,
        state_since=cluster.state_since,
        state_reason=cluster.state_reason,
        health_failure=cluster.health.finding,
        recovered_at=cluster.health.recovered_at,
        resource_package=cluster.resource_package,
        mounts=cluster.volumes,
        is_absent=_is_absent(cluster),
        on_demand=cluster.on_demand_run is not None,
        can_call_back=cluster.can_call_back is True,
    )


def _is_absent(cluster: Cluster) -> bool:
    """One that has fallen is taken down, and then its backend wants no node of it any more."""
    is_down = cluster.state is ClusterState.FAILED and cluster.kind is ClusterKind.MANAGED and not cluster.nodes_wanted
    return is_down or cluster.state in {ClusterState.STOPPED, ClusterState.DELETED}


def config_columns(config: ClusterConfig) -> dict[str, Any]:
    return dict(_CONFIG.dump_python(config, mode="json"))


def state_columns(
    state: ClusterState, now: datetime, reason: Reason | None = None, health: Health | None = None
) -> dict[str, Any]:
    """A new state makes everything seen before it void, but for what `health` has kept of it."""
    return {
        "state": str(state),
        "state_since": now,
        "state_reason": reason_column(reason),
        "health": health_column(health) if health else None,
        "nodes": [],
        "can_call_back": None,
    }


def reason_column(reason: Reason | None) -> dict[str, Any] | None:
    return None if reason is None else dict(_REASON.dump_python(reason, mode="json"))


def health_column(health: Health) -> dict[str, Any]:
    return dict(_HEALTH.dump_python(health, mode="json"))


def sight_columns(cluster: Cluster) -> dict[str, Any]:
    """What probes found out."""
    return {
        "health": health_column(cluster.health),
        "nodes": _NODES.dump_python(cluster.nodes, mode="json"),
        "ray_version": cluster.ray_version,
        "python_version": cluster.python_version,
        "can_call_back": cluster.can_call_back,
    }


async def of_credential(session: AsyncSession, name: str) -> list[str]:
    """Names of the clusters that refer to this credential."""
    statement = select(ClusterRow.name).where(ClusterRow.credential == name, ClusterRow.state != ClusterState.DELETED)
    return sorted(await session.scalars(statement))


async def of_volume(session: AsyncSession, name: str) -> list[str]:
    """Names of the clusters that are registered with this volume."""
    rows = await session.execute(select(ClusterRow.name, ClusterRow.volumes).where(_LIVE))
    return sorted(row.name for row in rows if any(one["volume"] == name for one in row.volumes))


async def progress(session: AsyncSession, cluster_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Nodes up and wanted, by cluster id."""
    columns = (ClusterRow.id, ClusterRow.nodes_up, ClusterRow.nodes_wanted)
    rows = await session.execute(select(*columns).where(ClusterRow.id.in_(cluster_ids)))
    return {row.id: (row.nodes_up, row.nodes_wanted) for row in rows}


async def resource_groups(session: AsyncSession, cluster_ids: Collection[str]) -> dict[str, str | None]:
    """By cluster id; None of a cluster that belongs to none."""
    columns = (ClusterRow.id, ClusterRow.resource_group)
    rows = await session.execute(select(*columns).where(ClusterRow.id.in_(cluster_ids)))
    return {row.id: row.resource_group for row in rows}


async def first_node_at(session: AsyncSession, cluster_ids: Sequence[str]) -> dict[str, datetime]:
    """When the first node of each cluster was there, by its id."""
    some_up = (EventRow.type == NODES) & (EventRow.params["up"].as_integer() > 0)
    all_up = EventRow.type == str(ClusterState.RUNNING)
    found = (
        select(EventRow.target_id, func.min(EventRow.at).label("at"))
        .where(EventRow.target_id.in_(cluster_ids), some_up | all_up)
        .group_by(EventRow.target_id)
    )
    return {row.target_id: row.at for row in await session.execute(found)}


async def forget_deleted(session: AsyncSession, before: datetime) -> None:
    """Deleted clusters are kept for as long as runs may speak of them."""
    old = select(ClusterRow.id).where(ClusterRow.state == ClusterState.DELETED, ClusterRow.state_since < before)
    ids = list(await session.scalars(old))
    await session.execute(delete(EventRow).where(EventRow.target_id.in_(ids)))
    await session.execute(delete(ClusterRow).where(ClusterRow.id.in_(ids)))
