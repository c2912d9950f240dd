"""Submissions as runs: made with a hidden job, found by the address and the id their client knows."""

from collections.abc import Sequence

from sqlalchemy import Select, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from api.ray_endpoint.answers import ray_status
from api.ray_endpoint.errors import id_is_taken, no_such_job, not_over_yet
from api.ray_endpoint.submit_request import SubmitRequest, is_id, new_id
from api.ray_endpoint.targets import Target, TargetKind, job_spec
from api.wiring import Services
from kernel.actor import Actor, Role
from kernel.db import guarded_update
from kernel.errors import Conflict, Malformed
from kernel.events import audit, record
from rayjobs.job_json import spec_from_json
from rayjobs.model.job import JobSpec, Origin
from rayjobs.model.run import RUN_FINALS
from rayjobs.run_service import RunRequest
from rayjobs.tables import JobRevisionRow, RunRow

MAX_LISTED = 1000


async def submit(services: Services, actor: Actor, target: Target, asked: SubmitRequest) -> str:
    """The id by which the client will ask for it."""
    actor.need(Role.SUBMITTER)
    for name in asked.uploads:
        if not await services.ray_uploads.has(actor.user, name):
            raise Malformed("RAY_UPLOAD_MISSING", pointer="/runtime_env", name=name)
    client_id = asked.client_id or new_id()

    async def store(session: AsyncSession) -> None:
        if asked.client_id and await session.scalar(_by_id(target, client_id)):
            raise id_is_taken(client_id)
        spec = job_spec(target, asked, await _stored(services, session, actor, target))
        job = (await services.jobs.create(session, actor, spec, origin=Origin.RAY_JOBS)).job
        request = RunRequest(
            job_id=job.id,
            job_revision=job.revision,
            spec=job.spec,
            origin=Origin.RAY_JOBS,
            target=str(target),
            client_id=client_id,
        )
        await services.runs.submit(session, actor, request)

    try:
        await services.database.write_together(store)
    except IntegrityError as error:  # the same id came twice at the same moment
        raise id_is_taken(client_id) from error
    return client_id


async def find(session: AsyncSession, target: Target, client_id: str) -> RunRow:
    run = await session.scalar(_by_id(target, client_id)) if is_id(client_id) else None
    if run is None:
        raise no_such_job(client_id)
    return run


async def latest(services: Services, session: AsyncSession, target: Target) -> Sequence[RunRow]:
    """Newest first. What was submitted to something that is gone is still told."""
    mine = select(RunRow).where(RunRow.target == str(target), RunRow.client_id.is_not(None))
    newest = mine.order_by(RunRow.created_at.desc(), RunRow.id.desc()).limit(MAX_LISTED)
    found = (await session.scalars(newest)).all()
    if not found:
        await _need(services, session, target)
    return found


async def specs_of(session: AsyncSession, runs: Sequence[RunRow]) -> dict[str, JobSpec]:
    """What each run was made from, by its id."""
    pinned = (JobRevisionRow.job_id == RunRow.job_id) & (JobRevisionRow.revision == RunRow.job_revision)
    wanted = (
        select(RunRow.id, JobRevisionRow.spec).join(JobRevisionRow, pinned).where(RunRow.id.in_([r.id for r in runs]))
    )
    return {run_id: spec_from_json(spec) for run_id, spec in await session.execute(wanted)}


async def stop(services: Services, actor: Actor, target: Target, client_id: str) -> bool:
    """Whether there was anything to stop."""
    async with services.database.write() as session:
        run = await find(session, target, client_id)
        was_over = run.state in RUN_FINALS
        await services.runs.stop(session, actor, run.id)
        return not was_over


async def delete(services: Services, actor: Actor, target: Target, client_id: str) -> None:
    """Gone from this endpoint and its id free again; the run keeps its history in Muster."""
    async with services.database.write() as session:
        run = await find(session, target, client_id)
        actor.need_owner(run.created_by)
        if run.state not in RUN_FINALS:
            raise not_over_yet(client_id, ray_status(run.state))
        if not await guarded_update(session, RunRow, run.id, run.version, client_id=None):
            raise Conflict("CHANGED_MEANWHILE", kind="run", ref=run.id)
        now = services.clock.now()
        told = {"address": str(target), "submission_id": client_id}
        record(session, run.id, "RAY_ID_RELEASED", at=now, actor=actor.user, **told)
        audit(session, "release-ray-id", ("run", run.id), at=now, actor=actor.user, **told)


async def _need(services: Services, session: AsyncSession, target: Target) -> None:
    """Nothing behind a mistyped address must not look like no submissions."""
    match target.kind:
        case TargetKind.CLUSTER:
            await services.clusters.get(session, target.name)
        case TargetKind.GROUP:
            await services.groups.get(session, target.name)
        case TargetKind.JOB:
            await services.jobs.get(session, target.name)


async def _stored(services: Services, session: AsyncSession, actor: Actor, target: Target) -> JobSpec | None:
    if target.kind is not TargetKind.JOB:
        return None
    job = await services.jobs.get(session, target.name)
    actor.need_owner(job.created_by)
    return job.spec


def _by_id(target: Target, client_id: str) -> Select[RunRow]:
    return select(RunRow).where(RunRow.target == str(target), RunRow.client_id == client_id)
