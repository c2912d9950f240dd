"""The loop that takes each attempt through its life: decide_attempt → act on its cluster → advance → store."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import Endpoint
from cluster_groups.service.base import HEALTH_LOOP, QUEUE_KEY, QUEUE_LOOP
from kernel.db import update_last
from kernel.errors import Unavailable
from kernel.events import record
from kernel.loop import Hints, Reconciler
from rayjobs import task_store
from rayjobs.attempt_logs import NODE_GONE, AttemptLogs, Place
from rayjobs.attempt_store import AttemptStore
from rayjobs.cargo import CannotSubmit
from rayjobs.decide.attempt import (
    COLLECT_PATIENCE_S,
    Action,
    Change,
    Do,
    Problem,
    Seen,
    decide_attempt,
    failed_submit,
    pause_s,
)
from rayjobs.decide.attempt_outcome import advance
from rayjobs.decide.retry import Backoff
from rayjobs.fleet import Fleet
from rayjobs.gateway.base import ClusterUnreachable, JobGateway, RayJob, RequestRefused
from rayjobs.model.run import AttemptState, EndClass, RunState
from rayjobs.reconcile.attempt_rows import attempt_columns, run_columns, usage_columns
from rayjobs.reconcile.gang import read_news, store_news
from rayjobs.reconcile.logs import GROWING
from rayjobs.run_service import ATTEMPT_LOOP, LOG_LOOP, RUN_NEWS
from rayjobs.snapshot import AttemptSnapshot, AttemptView
from rayjobs.start_times import StartTimes
from rayjobs.submission import Packages, prepare
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, RunRow, UsageRow

ANSWER_WHEN_LOST_S = 5.0
"""How long a cluster that has not answered the last time may take over a submission."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptPlan:
    snapshot: AttemptSnapshot
    action: Action
    now: datetime

    @property
    def view(self) -> AttemptView:
        return self.snapshot.view


class AttemptReconciler(Reconciler[AttemptSnapshot, AttemptPlan, Change]):
    name = ATTEMPT_LOOP
    concurrency = 64
    applies_together = True
    pace = 6.0
    """Looks at young attempts were most of what a burst of runs cost; a head that starts several is in no hurry."""

    def __init__(  # noqa: PLR0917 - what it works with, each of its own type
        self,
        gateway: JobGateway,
        fleet: Fleet,
        packages: Packages,
        logs: AttemptLogs,
        hints: Hints,
        backoff: Backoff,
    ) -> None:
        self._backoff = backoff
        self._gateway = gateway
        self._fleet = fleet
        self._store = AttemptStore(fleet)
        self._start_times = StartTimes()
        self._packages = packages
        self._logs = logs
        self._hints = hints
        self._watches_since: datetime | None = None

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        return list(await session.scalars(select(AttemptRow.id).where(IS_NOT_ENDED)))

    async def load(self, session: AsyncSession, key: str) -> AttemptSnapshot | None:
        return (await self.load_many(session, [key])).get(key)

    async def load_many(self, session: AsyncSession, keys: Sequence[str]) -> Mapping[str, AttemptSnapshot]:
        return await self._store.load(session, keys)

    def begin(self) -> None:
        self._watches_since = None

    def decide(self, snapshot: AttemptSnapshot, now: datetime) -> AttemptPlan | None:
        self._watches_since = self._watches_since or now
        view = replace(snapshot.view, watched_since=self._watches_since)
        action = decide_attempt(view, now)
        if action is None:
            return None
        return AttemptPlan(snapshot=replace(snapshot, view=view), action=action, now=now)

    async def act(self, plan: AttemptPlan) -> Change:
        seen = await self._carry_out(plan)
        change = advance(plan.view, plan.action, seen, plan.now, self._backoff)
        is_pending = plan.view.state is AttemptState.PENDING and seen.job is not None
        if is_pending and not plan.view.cluster_is_own:  # no other driver will ever start there
            self._start_times.note(plan.view.cluster_id, has_started=change.state is not None)
        if why := failed_submit(plan.action, seen, change):
            self._fleet.submits.note(plan.view.cluster_id, plan.view.id, why)
        if change.close_log is not None or _nothing_was_written(change):
            await self._close_log(plan.view, change)
        return change

    def changes(self, plan: AttemptPlan, outcome: Change) -> bool:
        del plan
        return not outcome.is_nothing

    async def apply(self, session: AsyncSession, plan: AttemptPlan, outcome: Change, now: datetime) -> None:
        view = plan.view
        columns = attempt_columns(view, outcome, now)
        if outcome.news is not None:
            columns |= await store_news(session, view, outcome.news, now)
        update_last(session, AttemptRow, view.id, view.version, **columns)
        self._apply_to_run(session, view, outcome, now)
        if usage := usage_columns(view, outcome, now):
            update_last(session, UsageRow, view.id, None, **usage)
        if outcome.end is not None and view.is_gang:
            await task_store.settle(session, view.id, now)
        if outcome.delete_cluster:
            await self._fleet.release(session, view.cluster_id)
        self._hint(session, view, outcome)

    def again_s(self, plan: AttemptPlan, outcome: Change) -> float | None:
        return pause_s(plan.view, plan.action, outcome, plan.now, self._start_times.of(plan.view.cluster_id))

    async def _carry_out(self, plan: AttemptPlan) -> Seen:
        view, do = plan.view, plan.action.do
        if do is Do.PROCEED:
            return Seen(done=True)
        if do is Do.WAIT or (do is Do.RELEASE and view.cluster_is_own):
            return Seen(done=False)
        try:
            endpoint = await self._fleet.endpoint(view.cluster_id)
            return await self._ask(plan, endpoint) if endpoint else Seen(problem=Problem.UNREACHABLE)
        except (ClusterUnreachable, Unavailable, TimeoutError) as error:
            return Seen(problem=Problem.UNREACHABLE, text=str(error))
        except RequestRefused as error:
            return Seen(problem=Problem.REFUSED, text=error.text, status=error.status)
        except CannotSubmit as error:
            return Seen(problem=Problem.IMPOSSIBLE, end=error.end)

    async def _ask(self, plan: AttemptPlan, endpoint: Endpoint) -> Seen:
        view = plan.view
        if plan.action.do is Do.POST:
            await self._post(plan, endpoint)
        elif plan.action.do is Do.LOOK:
            return await self._look(plan, endpoint)
        elif plan.action.do is Do.STOP:
            await self._gateway.stop(endpoint, view.id)
            return await self._look(plan, endpoint)
        elif plan.action.do is Do.COLLECT:
            return Seen(done=await self._collect(plan, endpoint))
        else:
            return Seen(done=await self._clear(view, endpoint))
        return Seen(done=True)

    async def _post(self, plan: AttemptPlan, endpoint: Endpoint) -> None:
        submission, deliveries = await prepare(plan.snapshot, self._packages)
        for delivery in deliveries:
            await self._gateway.deliver(endpoint, delivery)
        # What may be lost is not waited for past the instant at which it is given up.
        async with asyncio.timeout(None if plan.view.lost_since is None else ANSWER_WHEN_LOST_S):
            await self._gateway.submit(endpoint, submission)

    async def _look(self, plan: AttemptPlan, endpoint: Endpoint) -> Seen:
        view = plan.view
        job = _believed(view, await self._gateway.look(endpoint, view.id))
        if job is None or not view.is_gang:
            return Seen(job=job)
        return Seen(job=job, news=await read_news(self._gateway, endpoint, view, job, plan.now))

    async def _collect(self, plan: AttemptPlan, endpoint: Endpoint) -> bool:
        view = plan.view
        if view.driver_address is None:  # it ended between two looks; the address is still in Ray's record
            job = _believed(view, await self._gateway.look(endpoint, view.id))
            address = job.driver_address if job else None
        else:
            address = view.driver_address
        if address is None:
            await self._close_log(view, Change(end=view.end))
            return True
        nodes = (view.cluster.nodes if view.cluster else ()) if view.is_gang else None
        place = Place(attempt_id=view.id, endpoint=endpoint, driver_address=address, nodes=nodes)
        logs = await self._logs.copy(place, is_over=True)
        waited = (plan.now - view.state_since).total_seconds() > COLLECT_PATIENCE_S
        if waited and logs.open == logs.silent > 0:
            await self._logs.close_tasks(view.id, NODE_GONE)
            return True
        return logs.open == 0

    async def _clear(self, view: AttemptView, endpoint: Endpoint) -> bool:
        """On a cluster that stays: nothing of the attempt goes on there, then Ray's own record of it goes."""
        try:
            await self._gateway.forget(endpoint, view.id)
        except RequestRefused:  # it is not over there
            await self._gateway.stop(endpoint, view.id)
            return False
        return True

    async def _close_log(self, view: AttemptView, change: Change) -> None:
        """Where no driver ever wrote a word, Ray's message is what there is to read."""
        end = change.end or view.end
        message = str(end.params.get("message", "")) if end and end.end_class is not EndClass.USER else ""
        text = message.encode() + b"\n" if message and view.driver_address is None else b""
        await self._logs.close(view.id, text=text, note=change.close_log)

    def _apply_to_run(self, session: AsyncSession, view: AttemptView, change: Change, now: datetime) -> None:
        columns = run_columns(view, change, now)
        if change.again is not None:
            reason = change.again.reason
            record(session, view.run_id, "WAITING", at=now, attempt=view.id, code=reason.code, params=reason.params)
        elif change.run_state is not None:
            told: dict[str, Any] = {"code": change.end.code, "exit_code": change.end.exit_code} if change.end else {}
            record(session, view.run_id, change.run_state, at=now, attempt=view.id, **told)
        if change.lost_since is not None:
            record(session, view.run_id, "CLUSTER_LOST", at=now, attempt=view.id)
        if change.found_again:
            record(session, view.run_id, "CLUSTER_FOUND", at=now, attempt=view.id)
        if change.state is not None:
            record(session, view.run_id, f"ATTEMPT_{change.state}", at=now, attempt=view.id)
        if columns:
            update_last(session, RunRow, view.run_id, view.run_version, **columns)

    def _hint(self, session: AsyncSession, view: AttemptView, change: Change) -> None:
        if change.state in GROWING or change.found_again:
            self._hints.send(session, LOG_LOOP, view.id)
        was_waited_for = view.run_state is RunState.WAITING or view.lost_since is not None
        frees = change.state is AttemptState.ENDED and was_waited_for
        if change.end is not None or change.state in {AttemptState.PLACING, AttemptState.RUNNING} or frees:
            self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        if view.is_gang and change.state is AttemptState.ENDED:  # what its nodes had in use is free to others now
            self._hints.send(session, HEALTH_LOOP, view.cluster_id)
        self._hints.send(session, RUN_NEWS, view.run_id)


def _believed(view: AttemptView, job: RayJob | None) -> RayJob | None:
    """Any job can write into Ray's record: the cluster's token goes only to nodes that the cluster has."""
    ips = {node.ip for node in view.cluster.nodes} if view.cluster else set()
    if job is None or job.driver_address is None or not ips or urlsplit(job.driver_address).hostname in ips:
        return job
    return replace(job, driver_address=None)


def _nothing_was_written(change: Change) -> bool:
    """It ended without ever having been on the cluster, so there is no log to collect."""
    return change.state is AttemptState.RELEASING and change.end is not None
