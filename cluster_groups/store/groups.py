"""Queries on cluster groups and the revisions of their policies, and the way between rows and values."""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Select, and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.group import ClusterGroup, Member, Policy, PolicyRevision
from cluster_groups.store.lookup import by_ref, filtered
from cluster_groups.tables import ClusterGroupRow, PolicyRevisionRow
from kernel.errors import NotFound
from kernel.paging import Page, PageRequest, paginate

SORTABLE = {"created_at": ClusterGroupRow.created_at, "name": ClusterGroupRow.name}
REVISIONS_SORTABLE = {"created_at": PolicyRevisionRow.created_at, "revision": PolicyRevisionRow.revision}

_REVISION = TypeAdapter(PolicyRevision)
_MEMBERS = TypeAdapter(tuple[Member, ...])
_POLICY = TypeAdapter(Policy)
_CURRENT = and_(
    PolicyRevisionRow.group_id == ClusterGroupRow.id, PolicyRevisionRow.revision == ClusterGroupRow.revision
)
_WITH_POLICY = select(ClusterGroupRow, PolicyRevisionRow).join(PolicyRevisionRow, _CURRENT)


async def find(session: AsyncSession, ref: str, *, lock: bool = False) -> ClusterGroupRow:
    return await by_ref(session, select(ClusterGroupRow), ref, "cluster_group", lock=lock)


async def every(session: AsyncSession) -> list[ClusterGroup]:
    return [group_of(row, revision_of(revision)) for row, revision in await session.execute(_WITH_POLICY)]


async def named(session: AsyncSession, name: str) -> ClusterGroup | None:
    """None: there is no group of this name."""
    found = (await session.execute(_WITH_POLICY.where(ClusterGroupRow.name == name))).one_or_none()
    return group_of(found[0], revision_of(found[1])) if found else None


async def page(session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest) -> Page[ClusterGroup]:
    statement = filtered(select(ClusterGroupRow), filters)
    rows = await paginate(session, statement, request, sortable=SORTABLE, key=ClusterGroupRow.id)
    ids = [row.id for row in rows.items]
    current = select(PolicyRevisionRow).join(ClusterGroupRow, _CURRENT).where(ClusterGroupRow.id.in_(ids))
    revisions = {row.group_id: revision_of(row) for row in await session.scalars(current)}
    return Page(items=[group_of(row, revisions[row.id]) for row in rows.items], next_cursor=rows.next_cursor)


async def revision(session: AsyncSession, group: ClusterGroupRow, number: int) -> PolicyRevision:
    row = await session.scalar(_revisions_of(group).where(PolicyRevisionRow.revision == number))
    if row is None:
        raise NotFound("NOT_FOUND", kind="policy_revision", ref=str(number))
    return revision_of(row)


async def revisions(
    session: AsyncSession, group: ClusterGroupRow, numbers: Collection[int]
) -> dict[int, PolicyRevision]:
    """Those of these numbers that there are."""
    statement = _revisions_of(group).where(PolicyRevisionRow.revision.in_(numbers))
    return {row.revision: revision_of(row) for row in await session.scalars(statement)}


async def page_of_revisions(
    session: AsyncSession, group: ClusterGroupRow, request: PageRequest
) -> Page[PolicyRevision]:
    statement = _revisions_of(group)
    rows = await paginate(session, statement, request, sortable=REVISIONS_SORTABLE, key=PolicyRevisionRow.id)
    return Page(items=[revision_of(row) for row in rows.items], next_cursor=rows.next_cursor)


def group_of(row: ClusterGroupRow, current: PolicyRevision) -> ClusterGroup:
    return ClusterGroup(
        id=row.id,
        name=row.name,
        revision=row.revision,
        description=row.description,
        timezone=current.timezone,
        members=current.members,
        policy=current.policy,
        revised_at=current.created_at,
        created_at=row.created_at,
        created_by=row.created_by,
    )


def revision_of(row: PolicyRevisionRow) -> PolicyRevision:
    return _REVISION.validate_python({column.key: getattr(row, column.key) for column in row.__table__.columns})


def revision_row(group_id: str, value: PolicyRevision) -> PolicyRevisionRow:
    columns: dict[str, Any] = {
        "members": _MEMBERS.dump_python(value.members, mode="json"),
        "policy": _POLICY.dump_python(value.policy, mode="json"),
    }
    return PolicyRevisionRow(
        group_id=group_id,
        revision=value.revision,
        timezone=value.timezone,
        comment=value.comment,
        created_at=value.created_at,
        created_by=value.created_by,
        **columns,
    )


def _revisions_of(group: ClusterGroupRow) -> Select[PolicyRevisionRow]:
    return select(PolicyRevisionRow).where(PolicyRevisionRow.group_id == group.id)
