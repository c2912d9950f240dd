"""What people do with runs: submit, stop, reprioritise, ask."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import ClusterRef
from cluster_groups.model.demand import Demand
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP
from kernel.actor import EVERY, SYSTEM_ACTOR, Actor
from kernel.clock import Clock
from kernel.db import asked_once, guarded_update, insert_last
from kernel.errors import Conflict, InvalidInput
from kernel.events import audit, record
from kernel.ids import new_id
from kernel.loop import Hints
from kernel.states import move
from rayjobs import run_store
from rayjobs.job_check import MAX_SECONDS
from rayjobs.job_references import check_grant
from rayjobs.job_service import JobService
from rayjobs.model.job import JobSpec, Origin, RunMode
from rayjobs.model.run import (
    RUN_FINALS,
    RUN_TRANSITIONS,
    WAITING_STATES,
    End,
    EndClass,
    EndCode,
    RunState,
    submission_id,
)
from rayjobs.tables import RunRow, RunTagRow
from runtime_envs.volumes import store as volumes
from runtime_envs.volumes.available import WantedMount

RUN_NEWS = "runs"
"""Topic of what people who watch runs want to know; the key is the run's id."""
ATTEMPT_LOOP = "attempts"
LOG_LOOP = "logs"

FindCluster = Callable[[AsyncSession, str], Awaitable[ClusterRef | None]]
"""The live cluster of this name; None: there is none any more, and the run will say so (A31)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One press of Run."""

    job_id: str
    job_revision: int
    spec: JobSpec
    origin: Origin = Origin.API
    priority: int | None = None
    max_wait_s: int | None = None
    target: str | None = None
    client_id: str | None = None


class RunService:
    """Methods flush into the session they are given and never commit."""

    def __init__(self, clock: Clock, hints: Hints, jobs: JobService, find_cluster: FindCluster) -> None:
        self._clock = clock
        self._hints = hints
        self._jobs = jobs
        self._find_cluster = find_cluster

    async def run_job(
        self,
        session: AsyncSession,
        actor: Actor,
        ref: str,
        *,
        priority: int | None = None,
        max_wait_s: int | None = None,
    ) -> RunRow:
        """R65: one more run from the job's present revision."""
        job = await self._jobs.get(session, ref, for_run=True)
        actor.need_owner(job.created_by)
        request = RunRequest(
            job_id=job.id, job_revision=job.revision, spec=job.spec, priority=priority, max_wait_s=max_wait_s
        )
        return await self.submit(session, actor, request)

    async def submit(self, session: AsyncSession, actor: Actor, request: RunRequest) -> RunRow:
        """Store the run, pinned to the job's revision, and wake admission once it is durable.

        What is answered is a copy: the row itself comes at the end of the unit of work.
        """
        now, run_id = self._clock.now(), new_id("run")  # in one breath: runs are listed in the order of their ids
        spec = request.spec
        _check_submission(request)
        cluster = await self._cluster(session, spec.cluster) if spec.cluster else None
        demand = replace(demand_by(actor, spec), mounts=await _mounts(session, spec))
        await check_grant(session, actor, spec)
        values: dict[str, Any] = {
            "id": run_id,
            "created_at": now,
            "created_by": actor.user,
            "cluster_id": cluster.id if cluster else None,
            "enqueued_at": now,
            "waiting_since": now,
            "demand": run_store.demand_to_json(demand),
            **_as_asked(request),
        }
        insert_last(session, RunRow, **values)
        for key, value in spec.tags.items():
            insert_last(session, RunTagRow, run_id=run_id, key=key, value=value)
        record(session, run_id, "SUBMITTED", at=now, actor=actor.user, revision=request.job_revision)
        audit(session, "run", ("job", spec.name), at=now, actor=actor.user, run=run_id)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        self._hints.send(session, RUN_NEWS, run_id)
        return RunRow(**values)

    async def stop(
        self, session: AsyncSession, actor: Actor, run_id: str, *, code: EndCode = EndCode.BY_USER
    ) -> RunRow:
        """End it in whatever state it is; a run that is over stays as it is."""
        row = await run_store.get_run(session, run_id, lock=True)
        if actor is not SYSTEM_ACTOR:
            actor.need_owner(row.created_by)
        state = RunState(row.state)
        if state in RUN_FINALS or row.stop_code is not None:
            return row
        now = self._clock.now()
        if state in WAITING_STATES:
            end = End(end_class=EndClass.STOPPED, code=code, params={"by": actor.user})
            await self._write(
                session, row, state=move(RUN_TRANSITIONS, state, RunState.STOPPED), condition=None,
                end=run_store.end_to_json(end), ended_at=now, stop_code=code, stop_requested_by=actor.user,
            )  # fmt: skip
        else:
            await self._write(
                session, row, state=move(RUN_TRANSITIONS, state, RunState.STOPPING), stop_code=code,
                stop_requested_by=actor.user,
            )  # fmt: skip
            self._hints.send(session, ATTEMPT_LOOP, submission_id(row.id, row.epoch))
        record(session, row.id, "STOP_REQUESTED", at=now, actor=actor.user, code=code)
        if row.state in RUN_FINALS:
            record(session, row.id, "STOPPED", at=now, actor=actor.user, code=code)
        audit(session, "stop", ("run", row.id), at=now, actor=actor.user, code=code)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        self._hints.send(session, RUN_NEWS, row.id)
        return row

    async def set_priority(self, session: AsyncSession, actor: Actor, run_id: str, priority: int) -> RunRow:
        row = await run_store.get_run(session, run_id, lock=True)
        actor.need_owner(row.created_by)
        if row.run_mode != RunMode.ON_DEMAND:
            raise InvalidInput("FIELD_NOT_FOR_MODE", pointer="/priority", field="priority", run_mode=row.run_mode)
        _check_priority(priority)
        if row.state not in WAITING_STATES:
            raise Conflict("RUN_NOT_WAITING", run=row.id, state=row.state)
        now = self._clock.now()
        await self._write(session, row, priority=priority)
        record(session, row.id, "PRIORITY_SET", at=now, actor=actor.user, priority=priority)
        audit(session, "set-priority", ("run", row.id), at=now, actor=actor.user, priority=priority)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        self._hints.send(session, RUN_NEWS, row.id)
        return row

    async def end_runs_on(self, session: AsyncSession, cluster_id: str, actor: Actor) -> None:
        """The cluster is taken away on somebody's word: its placed runs end as STOPPED(FORCED)."""
        for run_id in await run_store.live_runs_on(session, cluster_id):
            await self.stop(session, actor, run_id, code=EndCode.FORCED)
            record(session, run_id, "CLUSTER_TAKEN_AWAY", at=self._clock.now(), actor=actor.user)

    async def _cluster(self, session: AsyncSession, name: str) -> ClusterRef | None:
        return await asked_once(session, ("cluster of a run", name), lambda: self._find_cluster(session, name))

    async def _write(self, session: AsyncSession, row: RunRow, **values: object) -> None:
        if not await guarded_update(session, RunRow, row.id, row.version, **values):
            raise Conflict("CHANGED_MEANWHILE", kind="run", ref=row.id)
        await session.refresh(row)


def demand_by(actor: Actor, spec: JobSpec) -> Demand:
    """Through a group a run goes only where whoever submits it might send it."""
    packages = None if EVERY in actor.resource_packages else actor.resource_packages
    return replace(run_store.demand_of(spec), packages=packages if spec.cluster_group else None)


async def _mounts(session: AsyncSession, spec: JobSpec) -> tuple[WantedMount, ...]:
    """For those that go to a cluster which is there already: an own one is made to have them."""
    if not spec.mounts or spec.run_mode is RunMode.ON_DEMAND:
        return ()
    found = await asked_once(session, ("mounts", spec.mounts), lambda: volumes.wanted(session, spec.mounts))
    return tuple(one for one in found if one is not None)


def _as_asked(request: RunRequest) -> dict[str, Any]:
    """The columns of a run that the request alone decides."""
    spec = request.spec
    return {
        "job_id": request.job_id,
        "job_revision": request.job_revision,
        "job_name": spec.name,
        "run_mode": spec.run_mode,
        "origin": request.origin,
        "target": request.target,
        "client_id": request.client_id,
        "queue": run_store.queue_of(spec),
        "priority": request.priority if request.priority is not None else spec.priority,
        "max_wait_s": request.max_wait_s if request.max_wait_s is not None else spec.max_wait_s,
        "max_runtime_s": spec.max_runtime_s,
        "start_timeout_s": run_store.start_timeout_of(spec),
        "task_groups": [[group.name, group.count] for group in spec.task_groups],
        "resource_package": spec.resource_package,
        "resource_group": spec.resource_group,
        "cluster": spec.cluster,
        "cluster_group": spec.cluster_group,
        "state": RunState.SUBMITTED,
    }


def _check_submission(request: RunRequest) -> None:
    if request.priority is not None:
        if request.spec.run_mode is not RunMode.ON_DEMAND:
            mode = str(request.spec.run_mode)
            raise InvalidInput("FIELD_NOT_FOR_MODE", pointer="/priority", field="priority", run_mode=mode)
        _check_priority(request.priority)
    if request.max_wait_s is not None and not 1 <= request.max_wait_s <= MAX_SECONDS:
        raise InvalidInput("MAX_WAIT_OUT_OF_RANGE", pointer="/max_wait_s", minimum=1, maximum=MAX_SECONDS)


def _check_priority(priority: int) -> None:
    if not 1 <= priority <= 9:
        raise InvalidInput("PRIORITY_OUT_OF_RANGE", pointer="/priority", value=priority)
