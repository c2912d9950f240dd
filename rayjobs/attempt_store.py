"""Attempts as the views decisions are made from."""

from collections.abc import Awaitable, Callable, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.demand import ClusterView
from rayjobs import run_store, task_store
from rayjobs.job_json import spec_from_json
from rayjobs.model.job import JobSpec, RunMode
from rayjobs.model.run import AttemptState, EndCode, RunState
from rayjobs.snapshot import AttemptSnapshot, AttemptView
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, JobRevisionRow, LogRow, RunRow


async def load(
    session: AsyncSession,
    attempt_ids: Sequence[str],
    view_cluster: Callable[[AsyncSession, str], Awaitable[ClusterView | None]],
) -> dict[str, AttemptSnapshot]:
    """By id, those that are not over: one question for all of them, and one for each of their clusters."""
    statement = (
        select(AttemptRow, RunRow, JobRevisionRow.spec, LogRow.complete)
        .join(RunRow, RunRow.id == AttemptRow.run_id)
        .join(
            JobRevisionRow,
            (JobRevisionRow.job_id == RunRow.job_id) & (JobRevisionRow.revision == RunRow.job_revision),
        )
        .outerjoin(LogRow, (LogRow.attempt_id == AttemptRow.id) & (LogRow.task_group == "") & (LogRow.task == 0))
        .where(AttemptRow.id.in_(attempt_ids), IS_NOT_ENDED)
    )
    rows = (await session.execute(statement)).all()
    clusters = {one: await view_cluster(session, one) for one in dict.fromkeys(row[0].cluster_id for row in rows)}
    return {
        attempt.id: await _snapshot(
            session, attempt, run, spec_from_json(spec), clusters[attempt.cluster_id], log_complete=bool(log_complete)
        )
        for attempt, run, spec, log_complete in rows
    }


async def _snapshot(
    session: AsyncSession,
    attempt: AttemptRow,
    run: RunRow,
    spec: JobSpec,
    cluster: ClusterView | None,
    *,
    log_complete: bool,
) -> AttemptSnapshot:
    if log_complete and spec.is_gang and attempt.state == AttemptState.COLLECTING:
        log_complete = not await task_store.with_open_logs(session, attempt.id)
    view = _view(attempt, run, spec, cluster, log_complete=log_complete)
    is_retry = attempt.epoch > 1 and attempt.state == AttemptState.POSTING
    previous = await _previous_cluster(session, attempt) if is_retry else None
    return AttemptSnapshot(view=view, spec=spec, owner=run.created_by, previous_cluster=previous)


async def _previous_cluster(session: AsyncSession, attempt: AttemptRow) -> str | None:
    """Where the run was tried before."""
    earlier = (AttemptRow.run_id == attempt.run_id, AttemptRow.epoch < attempt.epoch)
    return await session.scalar(select(AttemptRow.cluster).where(*earlier).order_by(AttemptRow.epoch.desc()).limit(1))


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
        allocated_at=attempt.allocated_at,
        events_bytes=attempt.events_bytes,
        verdict=run_store.end_from_json(attempt.verdict),
        end=run_store.end_from_json(attempt.end),
        run_id=run.id,
        run_version=run.version,
        run_state=RunState(run.state),
        run_mode=RunMode(run.run_mode),
        task_groups=spec.task_groups,
        retry=spec.retry,
        tries=run.tries,
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
