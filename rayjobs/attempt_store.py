"""Attempts as the views decisions are made from."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.demand import ClusterView
from cluster_groups.model.group import OnClusterLoss
from kernel.remembered import Remembered
from rayjobs import run_store, task_store
from rayjobs.fleet import Fleet
from rayjobs.job_json import spec_from_json
from rayjobs.model.job import JobSpec, RunMode
from rayjobs.model.run import AttemptState, EndCode, RunState
from rayjobs.queue_store import IS_STALE
from rayjobs.snapshot import AttemptSnapshot, AttemptView
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, JobRevisionRow, LogRow, RunRow

Revision = tuple[str, int]
"""Id of a job and number of its revision."""

_REMEMBERED = 500
"""Definitions of jobs that are kept at hand."""


class AttemptStore:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._specs: Remembered[Revision, JobSpec] = Remembered(_REMEMBERED)

    async def load(self, session: AsyncSession, attempt_ids: Sequence[str]) -> dict[str, AttemptSnapshot]:
        """By id, those that are not over: few questions for all of them, in a session that writes nothing."""
        statement = (
            select(AttemptRow, RunRow, LogRow.complete)
            .join(RunRow, RunRow.id == AttemptRow.run_id)
            .outerjoin(LogRow, (LogRow.attempt_id == AttemptRow.id) & (LogRow.task_group == "") & (LogRow.task == 0))
            .where(AttemptRow.id.in_(attempt_ids), IS_NOT_ENDED)
        )
        rows = (await session.execute(statement)).all()
        views = await self._fleet.views(session, {attempt.cluster_id for attempt, _, _ in rows})
        clusters = {view.id: view for view in views}
        held_up = await _with_stale(
            session, {one.cluster_id for one, _, _ in rows if one.state == AttemptState.POSTING and one.lost_since}
        )
        specs = await self._specs_of(session, {(run.job_id, run.job_revision) for _, run, _ in rows})
        found = {}
        for attempt, run, log_complete in rows:
            spec = specs[run.job_id, run.job_revision]
            view = _view(attempt, run, spec, clusters.get(attempt.cluster_id), log_complete=bool(log_complete))
            view = replace(view, is_held_up=view.state is AttemptState.POSTING and view.cluster_id in held_up)
            found[attempt.id] = await _snapshot(session, view, spec, owner=run.created_by)
        return found

    async def _specs_of(self, session: AsyncSession, revisions: Collection[Revision]) -> dict[Revision, JobSpec]:
        known = self._specs.known(dict.fromkeys(revisions, 0))  # a revision never changes
        missing = [one for one in revisions if one not in known]
        if missing:
            columns = (JobRevisionRow.job_id, JobRevisionRow.revision, JobRevisionRow.spec)
            which = tuple_(JobRevisionRow.job_id, JobRevisionRow.revision).in_(missing)
            for job_id, revision, spec in await session.execute(select(*columns).where(which)):
                known[job_id, revision] = spec_from_json(spec)
                self._specs.keep((job_id, revision), 0, known[job_id, revision])
        return known


async def _snapshot(session: AsyncSession, view: AttemptView, spec: JobSpec, owner: str) -> AttemptSnapshot:
    if view.log_complete and view.is_gang and view.state is AttemptState.COLLECTING:
        view = replace(view, log_complete=not await task_store.with_open_logs(session, view.id))
    is_retry = view.epoch > 1 and view.state is AttemptState.POSTING
    previous = await _previous_cluster(session, view) if is_retry else None
    return AttemptSnapshot(view=view, spec=spec, owner=owner, previous_cluster=previous)


async def _with_stale(session: AsyncSession, cluster_ids: Collection[str]) -> set[str]:
    """Of these clusters those with attempts that were given up as lost and are not confirmed over."""
    if not cluster_ids:
        return set()
    statement = select(AttemptRow.cluster_id).where(AttemptRow.cluster_id.in_(cluster_ids), IS_STALE)
    return set(await session.scalars(statement))


async def _previous_cluster(session: AsyncSession, view: AttemptView) -> str | None:
    """Where the run was tried before."""
    earlier = (AttemptRow.run_id == view.run_id, AttemptRow.epoch < view.epoch)
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
        on_cluster_loss=OnClusterLoss(attempt.on_cluster_loss) if attempt.on_cluster_loss else None,
        retry_safe=spec.retry_safe,
        window_ends_at=attempt.window_ends_at,
        lease_ttl_s=attempt.lease_ttl_s,
        lease_until=attempt.lease_until,
        cluster_id=attempt.cluster_id,
        cluster_name=attempt.cluster,
        cluster=cluster,
        log_complete=log_complete,
    )
