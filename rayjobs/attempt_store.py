"""Attempts as the views decisions are made from."""

from collections.abc import Awaitable, Callable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.demand import ClusterView
from rayjobs import run_store
from rayjobs.job_json import spec_from_json
from rayjobs.model.job import JobSpec, RunMode
from rayjobs.model.run import AttemptState, EndCode, RunState
from rayjobs.snapshot import AttemptSnapshot, AttemptView
from rayjobs.tables import AttemptRow, JobRevisionRow, LogRow, RunRow


async def load(
    session: AsyncSession,
    attempt_id: str,
    view_cluster: Callable[[AsyncSession, str], Awaitable[ClusterView | None]],
) -> AttemptSnapshot | None:
    """None when it is over."""
    statement = (
        select(AttemptRow, RunRow, JobRevisionRow.spec, LogRow.complete)
        .join(RunRow, RunRow.id == AttemptRow.run_id)
        .join(
            JobRevisionRow,
            (JobRevisionRow.job_id == RunRow.job_id) & (JobRevisionRow.revision == RunRow.job_revision),
        )
        .outerjoin(LogRow, (LogRow.attempt_id == AttemptRow.id) & (LogRow.task_group == "") & (LogRow.task == 0))
        .where(AttemptRow.id == attempt_id)
    )
    found = (await session.execute(statement)).one_or_none()
    if found is None or found[0].state == AttemptState.ENDED:
        return None
    attempt, run, spec_json, log_complete = found
    spec = spec_from_json(spec_json)
    cluster = await view_cluster(session, attempt.cluster_id)
    view = _view(attempt, run, spec, cluster, log_complete=bool(log_complete))
    return AttemptSnapshot(view=view, spec=spec, owner=run.created_by)


def _view(
    attempt: AttemptRow, run: RunRow, spec: JobSpec, cluster: ClusterView | None, *, log_complete: bool
) -> AttemptView:
    return AttemptView(
        id=attempt.id,
        version=attempt.version,
        epoch=attempt.epoch,
        state=AttemptState(attempt.state),
        state_since=attempt.state_since,
        created_at=attempt.created_at,
        posted_at=attempt.posted_at,
        started_at=attempt.started_at,
        lost_since=attempt.lost_since,
        driver_address=attempt.driver_address,
        end=run_store.end_from_json(attempt.end),
        run_id=run.id,
        run_version=run.version,
        run_state=RunState(run.state),
        run_mode=RunMode(run.run_mode),
        stop_code=EndCode(run.stop_code) if run.stop_code else None,
        start_timeout_s=spec.start_timeout_s,
        stop_grace_s=spec.stop_grace_s,
        max_runtime_s=spec.max_runtime_s,
        lost_timeout_s=attempt.lost_timeout_s,
        cluster_id=attempt.cluster_id,
        cluster_name=attempt.cluster,
        cluster=cluster,
        log_complete=log_complete,
    )
