"""Use cases of jobs: make, change, copy, delete, find. Whoever calls commits; everybody with a token may read."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor, Role
from kernel.clock import Clock
from kernel.errors import Conflict, Problem, StaleRevision, problem, raise_problems
from kernel.events import audit, record
from kernel.ids import new_id
from kernel.paging import Page, PageRequest
from rayjobs import job_store
from rayjobs.job_check import check_job, with_defaults
from rayjobs.job_name import check_name, copy_name
from rayjobs.job_references import check_grant, check_opened, check_references, check_room
from rayjobs.job_store import JobFilter
from rayjobs.model.job import Job, JobRevision, JobSpec, Origin, RunCounts
from rayjobs.run_store import unsettled_runs_of
from rayjobs.tables import JobRow
from rayjobs.task_groups import fixed_differences
from runtime_envs.check_uri import UriPolicy

EDITABLE = frozenset(
    {"package", "entrypoint", "task_groups", "mounts", "runtime_env", "description", "tags", "priority"}
)
"""What an edit may change (R66, A27), of task groups their commands only; for the rest people copy the job."""

_NAMES_AT_ONCE = 50
_EVENTS = {"create": "CREATED", "edit": "EDITED", "delete": "DELETED"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    job: Job
    warnings: Sequence[Problem] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEdit:
    """New values by the names of JobSpec's fields; `if_match` is the revision they were made for."""

    changes: Mapping[str, Any]
    if_match: int | None = None


class JobService:
    def __init__(self, clock: Clock, uris: UriPolicy) -> None:
        """`uris`: what a job may make its nodes fetch from."""
        self._clock = clock
        self._uris = uris

    async def create(self, session: AsyncSession, actor: Actor, spec: JobSpec, *, origin: Origin = Origin.API) -> Saved:
        """A job of the Ray Jobs endpoint is named by its own id: nobody chose a name for it."""
        actor.need(Role.SUBMITTER)
        await check_opened(session, actor, spec)
        job_id = new_id("job")
        spec = with_defaults(spec if origin is Origin.API else replace(spec, name=job_id))
        raise_problems(check_job(spec, self._uris, origin))
        findings = await check_references(session, spec)
        raise_problems(findings.errors)
        await check_grant(session, actor, spec)
        room = await check_room(session, spec, findings)
        raise_problems(room.errors)
        if origin is Origin.API and await job_store.names_taken(session, [spec.name]):
            raise Conflict("NAME_TAKEN", pointer="/name", kind="job", name=spec.name)
        job = Job(
            id=job_id,
            origin=origin,
            revision=1,
            created_at=self._clock.now(),
            created_by=actor.user,
            spec=spec,
        )
        await job_store.insert(session, job)
        self._tell(session, actor, job, "create")
        return Saved(job=job, warnings=[*findings.warnings, *room.warnings])

    async def edit(self, session: AsyncSession, actor: Actor, ref: str, edit: JobEdit) -> Saved:
        """Runs already made keep the revision they were made from. Without a difference there is no new revision."""
        row, job = await self._find(session, ref)
        actor.need_owner(job.created_by)
        _check_match(job, edit.if_match)
        spec = with_defaults(replace(job.spec, **edit.changes))
        changed = {name for name in edit.changes if getattr(job.spec, name) != getattr(spec, name)}
        fixed = sorted(changed - EDITABLE) + fixed_differences(job.spec.task_groups, spec.task_groups)
        if fixed:
            raise Conflict("FIELD_IMMUTABLE", pointer=f"/{fixed[0]}", fields=fixed)
        findings = await check_references(session, spec)
        raise_problems(_about(changed, [*check_job(spec, self._uris, job.origin), *findings.errors]))
        if spec == job.spec:
            return Saved(job=job, warnings=findings.warnings)
        job = replace(job, revision=job.revision + 1, spec=spec)
        await job_store.update(session, row, job, at=self._clock.now(), by=actor.user)
        self._tell(session, actor, job, "edit", revision=job.revision, fields=sorted(changed))
        return Saved(job=job, warnings=findings.warnings)

    async def copy(self, session: AsyncSession, ref: str) -> JobSpec:
        """A draft under a free name; nothing is stored and no name is kept for it (R67, A29)."""
        _, job = await self._find(session, ref)
        return replace(job.spec, name=await _free_copy_name(session, job.spec.name))

    async def delete(self, session: AsyncSession, actor: Actor, ref: str, if_match: int | None = None) -> None:
        row, job = await self._find(session, ref)
        actor.need_owner(job.created_by)
        _check_match(job, if_match)
        # First the mark, then the look: a run stored in between holds the row (`find(for_run=True)`), so that
        # the mark waits for it and the look sees it.
        await job_store.mark_deleted(session, row, self._clock.now())
        if live := await unsettled_runs_of(session, job.id):
            raise Conflict("JOB_HAS_ACTIVE_RUNS", job=job.spec.name, count=len(live), runs=live)
        self._tell(session, actor, job, "delete")

    async def name_check(self, session: AsyncSession, name: str) -> Problem | None:
        """Why the name cannot be had; None: it is free."""
        if wrong := check_name(name):
            return wrong
        taken = await job_store.names_taken(session, [name])
        return problem("NAME_TAKEN", "/name", kind="job", name=name) if taken else None

    async def get(self, session: AsyncSession, ref: str, *, for_run: bool = False) -> Job:
        """`for_run`: it cannot be deleted before this unit of work is over."""
        return await job_store.find(session, ref, for_run=for_run)

    async def list(self, session: AsyncSession, wanted: JobFilter, request: PageRequest) -> Page[Job]:
        return await job_store.page_of_jobs(session, wanted, request)

    async def run_counts(self, session: AsyncSession, jobs: Iterable[Job]) -> dict[str, RunCounts]:
        """By job id, in one query."""
        return await job_store.run_counts(session, [job.id for job in jobs])

    async def revisions(self, session: AsyncSession, ref: str) -> Sequence[JobRevision]:
        """Newest first."""
        row = await job_store.find_row(session, ref)
        return await job_store.revisions(session, row.id)

    async def _find(self, session: AsyncSession, ref: str) -> tuple[JobRow, Job]:
        row = await job_store.find_row(session, ref)
        return row, (await job_store.load(session, [row]))[0]

    def _tell(self, session: AsyncSession, actor: Actor, job: Job, action: str, **detail: Any) -> None:
        now = self._clock.now()
        record(session, job.id, _EVENTS[action], at=now, actor=actor.user, **detail)
        audit(session, action, ("job", job.spec.name), at=now, actor=actor.user, **detail)


def _check_match(job: Job, if_match: int | None) -> None:
    if if_match is not None and if_match != job.revision:
        raise StaleRevision("REVISION_CONFLICT", revision=job.revision)


def _about(changed: Collection[str], problems: Iterable[Problem]) -> list[Problem]:
    """An edit answers for what it changes, not for a rule or a deletion that came since the rest was accepted."""
    return [one for one in problems if one.pointer and one.pointer.split("/")[1] in changed]


async def _free_copy_name(session: AsyncSession, name: str) -> str:
    for start in count(1, _NAMES_AT_ONCE):
        names = [copy_name(name, number) for number in range(start, start + _NAMES_AT_ONCE)]
        taken = await job_store.names_taken(session, names)
        if free := next((one for one in names if one not in taken), None):
            return free
    raise AssertionError("count() does not end")
