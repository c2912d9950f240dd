"""Rows of clusters, cluster groups, resource packages and resource groups."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base, Named

_LIVE = text("state != 'DELETED'")


class ClusterRow(Named, Base):
    """`revision` counts edits of the configuration (ETag); `version` guards every write."""

    __tablename__ = "clusters"
    __table_args__ = (
        Index("uq_clusters_live_name", "name", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
        Index(None, "state"),
    )

    name: Mapped[str]
    revision: Mapped[int] = mapped_column(default=1)
    kind: Mapped[str]
    backend: Mapped[str | None]
    resource_package: Mapped[str | None]
    resource_group: Mapped[str | None]
    image: Mapped[str | None]
    head: Mapped[dict[str, Any] | None]
    worker_groups: Mapped[list[Any]]
    volumes: Mapped[list[Any]]
    advanced_parameters: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    address: Mapped[str | None]
    credential: Mapped[str | None]
    allow_open: Mapped[bool] = mapped_column(default=False)
    autostart: Mapped[bool] = mapped_column(default=False)
    idle_stop_s: Mapped[int | None]
    max_runs: Mapped[int | None]
    on_demand_run: Mapped[str | None]
    """The run this cluster was made for; such clusters are not listed and take nothing else."""
    cordoned: Mapped[bool] = mapped_column(default=False)
    state: Mapped[str]
    state_since: Mapped[datetime]
    state_reason: Mapped[dict[str, Any] | None]
    force_stop: Mapped[bool] = mapped_column(default=False)
    """Somebody said that live runs do not hold back the stop."""
    nodes_up: Mapped[int] = mapped_column(default=0)
    nodes_wanted: Mapped[int] = mapped_column(default=0)
    health: Mapped[dict[str, Any] | None]
    nodes: Mapped[list[Any]]
    ray_version: Mapped[str | None]
    python_version: Mapped[str | None]
    can_call_back: Mapped[bool | None]


class ClusterGroupRow(Named, Base):
    __tablename__ = "cluster_groups"

    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str]
    revision: Mapped[int] = mapped_column(default=1)


class PolicyRevisionRow(Base):
    """Members, time zone and policy of one revision of a group; never changed."""

    __tablename__ = "policy_revisions"
    __table_args__ = (UniqueConstraint("group_id", "revision"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    group_id: Mapped[str] = mapped_column(ForeignKey("cluster_groups.id", ondelete="CASCADE"))
    revision: Mapped[int]
    timezone: Mapped[str]
    members: Mapped[list[Any]]
    policy: Mapped[dict[str, Any]]
    comment: Mapped[str]
    created_at: Mapped[datetime]
    created_by: Mapped[str]


class ResourcePackageRow(Named, Base):
    __tablename__ = "resource_packages"

    name: Mapped[str] = mapped_column(unique=True)
    capacity: Mapped[dict[str, Any]]
    backend: Mapped[str | None]
    namespace: Mapped[str | None]


class ResourceGroupRow(Named, Base):
    __tablename__ = "resource_groups"

    name: Mapped[str] = mapped_column(unique=True)
    resource_package: Mapped[str] = mapped_column(ForeignKey("resource_packages.name"))
    kind: Mapped[str]
    quota: Mapped[dict[str, Any]]
    queue: Mapped[dict[str, Any]]
