"""The loop that takes each attempt through its life: decide_attempt → act on its cluster → advance → store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import Endpoint
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP
from kernel.db import guarded_update
from kernel.errors import Unavailable
from kernel.events import record
from kernel.loop import Hints, Reconciler, Superseded
from kernel.states import move
from rayjobs import attempt_store, run_store
from rayjobs.decide.attempt import Action, Change, Do, Problem, Seen, advance, decide_attempt, pause_s
from rayjobs.fleet import Fleet
from rayjobs.gateway.base import ClusterUnreachable, JobGateway, RayStatus, RequestRefused
from rayjobs.logs import LogKeeper, Source, driver_log
from rayjobs.model.run import ATTEMPT_TRANSITIONS, RUN_TRANSITIONS, AttemptState, EndClass, RunState
from rayjobs.run_service import ATTEMPT_LOOP, LOG_LOOP, RUN_NEWS
from rayjobs.snapshot import AttemptSnapshot, AttemptView
from rayjobs.submission import PackageGone, Packages, prepare
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, RunRow


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

    def __init__(self, gateway: JobGateway, fleet: Fleet, packages: Packages, logs: LogKeeper, hints: Hints) -> None:
        self._gateway = gateway
        self._fleet = fleet
        self._packages = packages
        self._logs = logs
        self._hints = hints

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        return list(await session.scalars(select(AttemptRow.id).where(IS_NOT_ENDED)))

    async def load(self, session: AsyncSession, key: str) -> AttemptSnapshot | None:
        return await attempt_store.load(session, key, self._fleet.view)

    def decide(self, snapshot: AttemptSnapshot, now: datetime) -> AttemptPlan | None:
        action = decide_attempt(snapshot.view, now)
        if action is None:
            return None
        return AttemptPlan(snapshot=snapshot, action=action, now=now)

    async def act(self, plan: AttemptPlan) -> Change:
        seen = await self._carry_out(plan)
        change = advance(plan.view, plan.action, seen, plan.now)
        if change.close_log is not None or _nothing_was_written(change):
            await self._close_log(plan.view, change)
        return change

    def changes(self, plan: AttemptPlan, outcome: Change) -> bool:
        del plan
        return not outcome.is_nothing

    async def apply(self, session: AsyncSession, plan: AttemptPlan, outcome: Change, now: datetime) -> None:
        view = plan.view
        values = _attempt_values(view, outcome, now)
        if not await guarded_update(session, AttemptRow, view.id, view.version, **values):
            raise Superseded
        await self._apply_to_run(session, view, outcome, now)
        if outcome.delete_cluster:
            await self._fleet.release(session, view.cluster_id)
        if outcome.state in {AttemptState.RUNNING, AttemptState.STOPPING}:
            self._hints.send(session, LOG_LOOP, view.id)
        if outcome.end is not None or outcome.state is AttemptState.RUNNING:
            self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        self._hints.send(session, RUN_NEWS, view.run_id)

    def again_s(self, plan: AttemptPlan, outcome: Change) -> float | None:
        return pause_s(plan.view, plan.action, outcome, plan.now)

    async def _carry_out(self, plan: AttemptPlan) -> Seen:
        view, do = plan.view, plan.action.do
        if do is Do.PROCEED:
            return Seen(done=True)
        if do is Do.WAIT or (do is Do.RELEASE and view.cluster_is_own):
            return Seen(done=False)
        try:
            endpoint = await self._fleet.endpoint(view.cluster_id)
            return await self._ask(plan, endpoint) if endpoint else Seen(problem=Problem.UNREACHABLE)
        except (ClusterUnreachable, Unavailable) as error:
            return Seen(problem=Problem.UNREACHABLE, text=str(error))
        except RequestRefused as error:
            return Seen(problem=Problem.REFUSED, text=error.text, status=error.status)
        except PackageGone as error:
            return Seen(problem=Problem.PACKAGE_MISSING, text=str(error))

    async def _ask(self, plan: AttemptPlan, endpoint: Endpoint) -> Seen:
        view = plan.view
        if plan.action.do is Do.POST:
            await self._post(plan, endpoint)
        elif plan.action.do is Do.LOOK:
            return Seen(job=await self._gateway.look(endpoint, view.id))
        elif plan.action.do is Do.STOP:
            await self._gateway.stop(endpoint, view.id)
            return Seen(job=await self._gateway.look(endpoint, view.id))
        elif plan.action.do is Do.COLLECT:
            return Seen(done=await self._collect(view, endpoint))
        else:
            return Seen(done=await self._clear(view, endpoint))
        return Seen(done=True)

    async def _post(self, plan: AttemptPlan, endpoint: Endpoint) -> None:
        submission, deliveries = await prepare(plan.snapshot, self._packages)
        for delivery in deliveries:
            await self._gateway.deliver(endpoint, delivery)
        await self._gateway.submit(endpoint, submission)

    async def _collect(self, view: AttemptView, endpoint: Endpoint) -> bool:
        if view.driver_address is None:  # it ended between two looks; the address is still in Ray's record
            job = await self._gateway.look(endpoint, view.id)
            address = job.driver_address if job else None
        else:
            address = view.driver_address
        if address is None:
            await self._close_log(view, Change(end=view.end))
            return True
        source = Source(attempt_id=view.id, endpoint=endpoint, agent_address=address, path=driver_log(view.id))
        return (await self._logs.copy(source, is_over=True)).complete

    async def _clear(self, view: AttemptView, endpoint: Endpoint) -> bool:
        """On a cluster that stays: nothing of the attempt goes on there, then Ray's own record of it goes."""
        job = await self._gateway.look(endpoint, view.id)
        if job is None:
            return True
        if job.status in {RayStatus.PENDING, RayStatus.RUNNING}:
            await self._gateway.stop(endpoint, view.id)
            return False
        await self._gateway.forget(endpoint, view.id)
        return True

    async def _close_log(self, view: AttemptView, change: Change) -> None:
        """Where no driver ever wrote a word, Ray's message is what there is to read."""
        end = change.end or view.end
        message = str(end.params.get("message", "")) if end and end.end_class is not EndClass.USER else ""
        text = message.encode() + b"\n" if message and view.driver_address is None else b""
        await self._logs.close(view.id, text=text, note=change.close_log)

    async def _apply_to_run(self, session: AsyncSession, view: AttemptView, change: Change, now: datetime) -> None:
        values: dict[str, Any] = {}
        if change.run_state is not None:
            values |= _run_values(view, change, now)
            told: dict[str, Any] = {"code": change.end.code, "exit_code": change.end.exit_code} if change.end else {}
            record(session, view.run_id, change.run_state, at=now, attempt=view.id, **told)
        if change.lost_since is not None:
            values["condition"] = {
                "code": "CLUSTER_LOST", "owner": "platform", "params": {"cluster": view.cluster_name},
                "since": now.isoformat(),
            }  # fmt: skip
            record(session, view.run_id, "CLUSTER_LOST", at=now, attempt=view.id)
        if change.found_again:
            values["condition"] = None
            record(session, view.run_id, "CLUSTER_FOUND", at=now, attempt=view.id)
        if change.state is not None:
            record(session, view.run_id, f"ATTEMPT_{change.state}", at=now, attempt=view.id)
        if values and not await guarded_update(session, RunRow, view.run_id, view.run_version, **values):
            raise Superseded


def _nothing_was_written(change: Change) -> bool:
    """It ended without ever having been on the cluster, so there is no log to collect."""
    return change.state is AttemptState.RELEASING and change.end is not None


def _attempt_values(view: AttemptView, change: Change, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if change.state is not None:
        values["state"] = move(ATTEMPT_TRANSITIONS, view.state, change.state)
        values["state_since"] = now
    if change.posted or change.state is AttemptState.POSTING:
        values["posted_at"] = now
    if change.run_state is RunState.RUNNING:
        values["started_at"] = now
    if change.state is AttemptState.ENDED:
        values["ended_at"] = now
    if change.end is not None:
        values["end"] = run_store.end_to_json(change.end)
    if change.lost_since is not None or change.found_again:
        values["lost_since"] = change.lost_since
    if change.driver_address is not None:
        values["driver_address"] = change.driver_address
    return values


def _run_values(view: AttemptView, change: Change, now: datetime) -> dict[str, Any]:
    assert change.run_state is not None  # noqa: S101 - the caller looked
    values: dict[str, Any] = {"state": move(RUN_TRANSITIONS, view.run_state, change.run_state)}
    if change.run_state is RunState.RUNNING:
        values["started_at"] = now
    if change.end is not None:
        if view.started_at is None and change.end.exit_code is not None:
            values["started_at"] = view.posted_at  # it was over before a look found it running
        values |= {"end": run_store.end_to_json(change.end), "ended_at": now, "condition": None}
    return values
