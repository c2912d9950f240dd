"""`/jobs` (api.md §2); the Run button is in `runs`."""

from fastapi import Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.deps import Call, Changing, Creating, Paging, Parting, Reading
from api.edge import v1_router
from api.schemas.base import PageOut, warnings_out
from api.schemas.jobs import (
    Inherited,
    JobCreate,
    JobEdit,
    JobFields,
    JobOut,
    JobRevisionOut,
    NameCheckOut,
)
from cluster_groups.model.cluster import Cluster
from kernel.errors import NotFound
from rayjobs import job_service
from rayjobs.job_service import Saved
from rayjobs.job_store import JobFilter
from rayjobs.model.job import JobSpec, RunMode

router = v1_router("jobs")


@router.post("/jobs", status_code=201, response_model=JobOut)
async def create_job(body: JobCreate, call: Creating) -> Response:
    async with call.write() as session:
        saved = await call.services.jobs.create(session, call.actor, body.spec())
        out = await _shown(call, session, saved)
        return call.created(out, f"/jobs/{saved.job.id}", revision=saved.job.revision)


@router.get("/jobs")
async def list_jobs(  # noqa: PLR0917 - filters of one list
    call: Reading,
    page: Paging,
    name: str | None = None,
    run_mode: RunMode | None = None,
    created_by: str | None = None,
    tag: str | None = None,
    cluster: str | None = None,
    cluster_group: str | None = None,
    resource_group: str | None = None,
    package: str | None = None,
) -> PageOut[JobOut]:
    wanted = JobFilter(
        name=name,
        run_mode=run_mode,
        created_by=created_by,
        tag=tag,
        cluster=cluster,
        cluster_group=cluster_group,
        resource_group=resource_group,
        package=package,
    )
    async with call.read() as session:
        found = await call.services.jobs.list(session, wanted, page)
        counts = await call.services.jobs.run_counts(session, found.items)
        return PageOut(items=[JobOut.of(job, counts[job.id]) for job in found.items], next_cursor=found.next_cursor)


@router.get("/jobs/name-check")
async def check_job_name(name: str, call: Reading) -> NameCheckOut:
    async with call.read() as session:
        return NameCheckOut.of(await call.services.jobs.name_check(session, name), call.language)


@router.get("/jobs/{ref}", response_model=JobOut)
async def get_job(ref: str, call: Reading) -> Response:
    async with call.read() as session:
        job = await call.services.jobs.get(session, ref)
        return call.answer(await _shown(call, session, Saved(job=job)), revision=job.revision)


@router.patch("/jobs/{ref}", response_model=JobOut)
async def edit_job(ref: str, body: JobEdit, call: Changing) -> Response:
    edit = job_service.JobEdit(changes=body.changes(), if_match=call.expected_revision)
    async with call.write() as session:
        saved = await call.services.jobs.edit(session, call.actor, ref, edit)
        return call.answer(await _shown(call, session, saved), revision=saved.job.revision)


@router.delete("/jobs/{ref}", status_code=204)
async def delete_job(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.jobs.delete(session, call.actor, ref, call.expected_revision)


@router.get("/jobs/{ref}/revisions")
async def list_job_revisions(ref: str, call: Reading, part: Parting) -> PageOut[JobRevisionOut]:
    """Newest first."""
    async with call.read() as session:
        revisions = await call.services.jobs.revisions(session, ref)
        return PageOut(**part.of([JobRevisionOut.of(revision) for revision in revisions]))


@router.post("/jobs/{ref}/copy")
async def copy_job(ref: str, call: Reading) -> JobFields:
    """A body for `POST /jobs`; nothing is stored."""
    async with call.read() as session:
        return JobFields.of_spec(await call.services.jobs.copy(session, ref))


async def _shown(call: Call, session: AsyncSession, saved: Saved) -> JobOut:
    counts = await call.services.jobs.run_counts(session, [saved.job])
    out = JobOut.of(saved.job, counts.get(saved.job.id))
    out.warnings = warnings_out(saved.warnings, call.language)
    out.inherited = await _inherited(call, session, saved.job.spec)
    return out


async def _inherited(call: Call, session: AsyncSession, spec: JobSpec) -> Inherited | None:
    """None for a target that is gone; members of a group that are gone are left out."""
    policy, names = None, [spec.cluster] if spec.cluster else []
    if spec.cluster_group is not None:
        group = (await call.services.groups.by_name(session)).get(spec.cluster_group)
        if group is not None:
            policy, names = group.policy, [member.cluster for member in group.members]
    clusters = [cluster for name in names if (cluster := await _cluster(call, session, name))]
    return Inherited.of(clusters, policy, call.services.clock.now()) if clusters or policy else None


async def _cluster(call: Call, session: AsyncSession, name: str) -> Cluster | None:
    try:
        return await call.services.clusters.get(session, name)
    except NotFound:
        return None
