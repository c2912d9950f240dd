"""Reading what was recorded: the events of one thing, and the audit of the installation."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.events import AuditRow, EventRow
from kernel.paging import Page, PageRequest, paginate


async def list_events(session: AsyncSession, target_id: str, page: PageRequest) -> Page[EventRow]:
    statement = select(EventRow).where(EventRow.target_id == target_id)
    sortable = {"created_at": EventRow.at, "at": EventRow.at}
    return await paginate(session, statement, page, sortable=sortable, key=EventRow.seq)


async def list_audit(session: AsyncSession, page: PageRequest, filters: dict[str, str | None]) -> Page[AuditRow]:
    """`filters` by column; None takes all."""
    given = {name: value for name, value in filters.items() if value is not None}
    sortable = {"created_at": AuditRow.at, "at": AuditRow.at}
    return await paginate(session, select(AuditRow).filter_by(**given), page, sortable=sortable, key=AuditRow.seq)
