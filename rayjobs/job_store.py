"""Queries on jobs and their revisions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, false, func, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.db import asked_once, guarded_update, insert_last
from kernel.errors import Conflict, NotFound, StaleRevision
from kernel.ids import looks_like_id
from kernel.paging import Page, PageRequest, paginate
from rayjobs.job_json import spec_from_json, spec_to_json
from rayjobs.job_name import check_name
from rayjobs.model.job import TAG_KEY, Job, JobRevision, Origin, RunCounts
from rayjobs.model.run import WAITING_STATES, RunState
from rayjobs.tables import IS_UNSETTLED, JobRevisionRow, JobRow, RunRow

SORTABLE = {"created_at": JobRow.created_at, "name": JobRow.name}

_CURRENT = and_(JobRevisionRow.job_id == JobRow.id, JobRevisionRow.revision == JobRow.revision)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """Exact matches by field; `tag` is `key:value`, `package` an id. `origin` None: hidden jobs too."""

    name: str | None = None
    run_mode: str | None = None
    created_by: str | None = None
    tag: str | None = None
    cluster: str | None = None
    cluster_group: str | None = None
    resource_group: str | None = None
    package: str | None = None
    origin: Origin | None = Origin.API


async def find_row(session: AsyncSession, ref: str) -> JobRow:
    """A live job by id or name."""
    row = (await session.scalars(select(JobRow).where(_is(ref)))).one_or_none()
    if row is None:
        raise _not_found(ref)
    return row


async def find(session: AsyncSession, ref: str, *, for_run: bool = False) -> Job:
    """At its current revision. `for_run` keeps it as it is until the new run is stored."""
    if not for_run:
        return await _find(session, ref)
    return await asked_once(session, ("job held for runs", ref), lambda: _find(session, ref, held=True))


async def load(session: AsyncSession, rows: Sequence[JobRow]) -> list[Job]:
    """The jobs of these rows, in their order, each at its current revision."""
    wanted = [(row.id, row.revision) for row in rows]
    statement = select(JobRevisionRow).where(tuple_(JobRevisionRow.job_id, JobRevisionRow.revision).in_(wanted))
    specs = {one.job_id: one.spec for one in await session.scalars(statement)}
    return [_job(row, specs[row.id]) for row in rows]


async def revisions(session: AsyncSession, job_id: str) -> list[JobRevision]:
    """Newest first."""
    statement = select(JobRevisionRow).where(JobRevisionRow.job_id == job_id).order_by(JobRevisionRow.revision.desc())
    return [_revision(row) for row in await session.scalars(statement)]


async def page_of_jobs(session: AsyncSession, wanted: JobFilter, request: PageRequest) -> Page[Job]:
    page = await paginate(session, _matching(wanted), request, sortable=SORTABLE, key=JobRow.id)
    return Page(items=await load(session, page.items), next_cursor=page.next_cursor)


async def names_taken(session: AsyncSession, names: Iterable[str]) -> set[str]:
    statement = select(JobRow.name).where(JobRow.deleted_at.is_(None), JobRow.name.in_(list(names)))
    return set(await session.scalars(statement))


async def run_counts(session: AsyncSession, job_ids: Sequence[str]) -> dict[str, RunCounts]:
    statement = (
        select(RunRow.job_id, RunRow.state, func.count())
        .where(RunRow.job_id.in_(job_ids))
        .group_by(RunRow.job_id, RunRow.state)
    )
    by_state: dict[str, dict[str, int]] = {job_id: {} for job_id in job_ids}
    for job_id, state, count in await session.execute(statement):
        by_state[job_id][state] = count
    return {
        job_id: RunCounts(
            waiting=sum(states.get(state, 0) for state in WAITING_STATES),
            starting=states.get(RunState.STARTING, 0),
            running=states.get(RunState.RUNNING, 0),
            total=sum(states.values()),
        )
        for job_id, states in by_state.items()
    }


async def users_of_package(session: AsyncSession, package_id: str) -> list[str]:
    """Names of the jobs that would miss this package: by their current revision, or by that of a run not yet over."""
    pinned = and_(JobRevisionRow.job_id == RunRow.job_id, JobRevisionRow.revision == RunRow.job_revision)
    current = select(JobRow.name).where(
        JobRow.deleted_at.is_(None), JobRow.origin == Origin.API, JobRow.package_id == package_id
    )
    running = (
        select(RunRow.job_name)
        .join(JobRevisionRow, pinned)
        .where(IS_UNSETTLED, JobRevisionRow.spec["package"].as_string() == package_id)
    )
    return sorted(await session.scalars(current.union(running)))


async def users_of_volume(session: AsyncSession, name: str) -> list[str]:
    """Names of the jobs that would miss this volume: by their current revision, or by that of a run not yet over."""
    may_name_it = JobRevisionRow.spec["mounts"].as_string().contains(f'"{name}"')
    pinned = and_(JobRevisionRow.job_id == RunRow.job_id, JobRevisionRow.revision == RunRow.job_revision)
    current = select(JobRow.name, JobRevisionRow.spec).join(JobRevisionRow, _CURRENT)
    running = select(RunRow.job_name, JobRevisionRow.spec).join(JobRevisionRow, pinned)
    found = [
        *await session.execute(current.where(JobRow.deleted_at.is_(None), JobRow.origin == Origin.API, may_name_it)),
        *await session.execute(running.where(IS_UNSETTLED, may_name_it)),
    ]
    return sorted({job for job, spec in found if any(mount["volume"] == name for mount in spec["mounts"])})


async def insert(session: AsyncSession, job: Job) -> None:
    """Jobs that people name are there at once; the hidden ones of the Ray endpoint at the end of the unit of work."""
    values = {
        "id": job.id,
        "created_at": job.created_at,
        "created_by": job.created_by,
        "name": job.spec.name,
        "origin": job.origin,
        "revision": job.revision,
        "run_mode": job.spec.run_mode,
        "package_id": job.spec.package,
    }
    if job.origin is Origin.API:
        session.add(JobRow(**values))
        try:
            await session.flush()
        except IntegrityError as error:  # somebody took the name since we looked
            raise Conflict("NAME_TAKEN", pointer="/name", kind="job", name=job.spec.name) from error
        session.add(JobRevisionRow(**_revision_values(job, job.created_at, job.created_by)))
    else:
        insert_last(session, JobRow, **values)
        insert_last(session, JobRevisionRow, **_revision_values(job, job.created_at, job.created_by))


async def update(session: AsyncSession, row: JobRow, job: Job, *, at: datetime, by: str) -> None:
    """Add the job's new revision and make it the current one."""
    await _guarded(session, row, revision=job.revision, package_id=job.spec.package)
    session.add(JobRevisionRow(**_revision_values(job, at, by)))
    await session.flush()


async def mark_deleted(session: AsyncSession, row: JobRow, at: datetime) -> None:
    await _guarded(session, row, deleted_at=at)


async def _find(session: AsyncSession, ref: str, *, held: bool = False) -> Job:
    statement = select(JobRow, JobRevisionRow.spec).join(JobRevisionRow, _CURRENT).where(_is(ref))
    if held:
        statement = statement.with_for_update(read=True, of=JobRow)
    found = (await session.execute(statement)).one_or_none()
    if found is None:
        raise _not_found(ref)
    return _job(*found)


def _is(ref: str) -> ColumnElement[bool]:
    if looks_like_id(ref):
        return and_(JobRow.deleted_at.is_(None), JobRow.id == ref)
    if check_name(ref):
        raise _not_found(ref)
    return and_(JobRow.deleted_at.is_(None), JobRow.name == ref)


def _job(row: JobRow, spec: Mapping[str, Any]) -> Job:
    return Job(
        id=row.id,
        origin=Origin(row.origin),
        revision=row.revision,
        created_at=row.created_at,
        created_by=row.created_by,
        spec=spec_from_json(spec),
    )


def _not_found(ref: str) -> NotFound:
    return NotFound("NOT_FOUND", kind="job", ref=ref)


def _matching(wanted: JobFilter) -> Select[JobRow]:
    spec = JobRevisionRow.spec
    statement = select(JobRow).join(JobRevisionRow, _CURRENT).where(JobRow.deleted_at.is_(None))
    equal: list[tuple[Any, str | None]] = [
        (JobRow.origin, wanted.origin),
        (JobRow.name, wanted.name),
        (JobRow.run_mode, wanted.run_mode),
        (JobRow.created_by, wanted.created_by),
        (JobRow.package_id, wanted.package),
        (spec["cluster"].as_string(), wanted.cluster),
        (spec["cluster_group"].as_string(), wanted.cluster_group),
        (spec["resource_group"].as_string(), wanted.resource_group),
    ]
    if wanted.tag is not None:
        key, _, value = wanted.tag.partition(":")
        if not TAG_KEY.fullmatch(key):  # no job has it, and it must not reach a JSON path
            return statement.where(false())
        equal.append((spec["tags"][key].as_string(), value))
    given = [(column, value) for column, value in equal if value is not None]
    if any("\0" in value for _, value in given):  # PostgreSQL takes no such text, and no job has it
        return statement.where(false())
    return statement.where(*(column == value for column, value in given))


def _revision(row: JobRevisionRow) -> JobRevision:
    return JobRevision(
        revision=row.revision, created_at=row.created_at, created_by=row.created_by, spec=spec_from_json(row.spec)
    )


def _revision_values(job: Job, at: datetime, by: str) -> dict[str, Any]:
    told = {"created_at": at, "created_by": by}
    return {"job_id": job.id, "revision": job.revision, "spec": spec_to_json(job.spec), **told}


async def _guarded(session: AsyncSession, row: JobRow, **values: Any) -> None:
    if not await guarded_update(session, JobRow, row.id, row.version, **values):
        current = await session.scalar(select(JobRow.revision).where(JobRow.id == row.id))
        raise StaleRevision("REVISION_CONFLICT", revision=current)
    await session.refresh(row)
