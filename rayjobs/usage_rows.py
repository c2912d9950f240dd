"""The rows that `usage` sums up: opened as attempts start; begun and ended in the transactions that move them."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.store import clusters
from kernel.db import insert_last
from rayjobs import run_store
from rayjobs.tables import AttemptRow, RunRow, UsageRow


async def open_usage(session: AsyncSession, attempts: Sequence[AttemptRow]) -> None:
    """From its start an attempt keeps others from what it is given, though nothing is charged before it has it all.

    On a cluster that is there, it goes on the account of that cluster's resource group.
    """
    if not attempts:
        return
    groups = await clusters.resource_groups(session, {attempt.cluster_id for attempt in attempts})
    columns = (RunRow.id, RunRow.job_name, RunRow.created_by)
    found = await session.execute(select(*columns).where(RunRow.id.in_([attempt.run_id for attempt in attempts])))
    runs = {row.id: row for row in found}
    for attempt in attempts:
        insert_last(
            session,
            UsageRow,
            attempt_id=attempt.id,
            run_id=attempt.run_id,
            job_name=runs[attempt.run_id].job_name,
            created_by=runs[attempt.run_id].created_by,
            resource_group=groups.get(attempt.cluster_id),
            cluster=attempt.cluster,
            amount=run_store.resources_to_json(run_store.demand_from_json(attempt.demand).resources),
            held_from=attempt.created_at,
            began_at=attempt.allocated_at,
            cold_start_s=0,
            in_vain=False,
        )
