"""The decisions of a cluster group's policy on all runs, as its page shows them."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.paging import Page, PageRequest, paginate
from rayjobs.tables import DecisionRow, RunRow


async def page_of_decisions(session: AsyncSession, cluster_group: str, request: PageRequest) -> Page[DecisionRow]:
    """Each is stored when it is made, so `seq` is their order in time."""
    runs = select(RunRow.id).where(RunRow.cluster_group == cluster_group)
    statement = select(DecisionRow).where(DecisionRow.run_id.in_(runs))
    sortable = {"created_at": DecisionRow.seq}
    return await paginate(session, statement, request, sortable=sortable, key=DecisionRow.seq)
