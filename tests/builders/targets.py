"""Stored things a job can name: resource packages and groups, clusters, cluster groups, packages."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import ClusterConfig, ClusterKind, ClusterState, Node
from cluster_groups.model.group import Member, Policy, PolicyRevision
from cluster_groups.model.quota import GroupConfig, PackageConfig
from cluster_groups.store import clusters, groups, resources
from cluster_groups.tables import ClusterGroupRow, ClusterRow, ResourceGroupRow, ResourcePackageRow
from kernel.errors import Problem
from kernel.ids import new_id
from kernel.resources import Resources
from runtime_envs import store as packages
from runtime_envs.model import UPLOAD_SOURCE, Package

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
DEFAULTS = Policy()
MADE: dict[str, Any] = {"created_at": NOW, "created_by": "ops"}


async def store_resource_package(session: AsyncSession, name: str = "default") -> None:
    config = PackageConfig(name=name, cpu=16, memory_gib=64)
    session.add(ResourcePackageRow(id=new_id("rpk"), **MADE, **resources.package_columns(config)))
    await session.flush()


async def store_resource_group(session: AsyncSession, name: str = "default", package: str = "default") -> None:
    config = GroupConfig(name=name, resource_package=package, quota=Resources(cpu=8, memory_gib=32))
    session.add(ResourceGroupRow(id=new_id("rgp"), **MADE, **resources.group_columns(config)))
    await session.flush()


async def store_cluster(
    session: AsyncSession,
    name: str = "c1",
    state: ClusterState = ClusterState.RUNNING,
    *,
    on_demand_run: str | None = None,
    nodes: Sequence[Node] = (),
    **fields: Any,
) -> None:
    """`fields` of its configuration; `nodes` are what was seen of it."""
    config = ClusterConfig(**{"name": name, "kind": ClusterKind.MANAGED, **fields})
    columns = clusters.config_columns(config) | clusters.state_columns(state, NOW)
    columns["nodes"] = [asdict(node) for node in nodes]
    session.add(ClusterRow(id=new_id("clu"), on_demand_run=on_demand_run, **MADE, **columns))
    await session.flush()


async def store_cluster_group(
    session: AsyncSession,
    name: str,
    *members: Member,
    policy: Policy = DEFAULTS,
) -> None:
    row = ClusterGroupRow(id=new_id("grp"), name=name, description="", **MADE)
    session.add(row)
    await session.flush()
    revised = PolicyRevision(revision=1, timezone="UTC", members=members, policy=policy, comment="", **MADE)
    session.add(groups.revision_row(row.id, revised))
    await session.flush()


async def store_package(session: AsyncSession, *, top_folder: str | None = None) -> str:
    warnings = (Problem(code="SINGLE_TOP_FOLDER", params={"folder": top_folder}),) if top_folder else ()
    package = Package(
        id=new_id("pkg"),
        sha256=new_id("sha"),
        size_bytes=1,
        unpacked_bytes=1,
        entry_count=1,
        file_name="p.zip",
        source=UPLOAD_SOURCE,
        warnings=warnings,
        **MADE,
    )
    packages.add_package(session, package)
    await session.flush()
    return package.id
