"""The loop that gives waiting runs their place: snapshot → plan_admission → one guarded write for each outcome."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.decide.decision import EVALUATE_EVERY
from cluster_groups.model.cluster import Cluster
from cluster_groups.model.group import OnClusterLoss
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP
from kernel.db import Superseded, insert_last, update_last, versions
from kernel.errors import Conflict
from kernel.events import record
from kernel.loop import Hints, Reconciler
from kernel.reasons import Reason
from kernel.states import move
from rayjobs import run_store
from rayjobs.decide.admit import AdmissionPlan, GiveUp, Start, Wait, Waiting, plan_admission
from rayjobs.decide.lease import lease_ttl_of
from rayjobs.explain import load_admission
from rayjobs.fleet import Fleet
from rayjobs.job_json import spec_from_json
from rayjobs.model.run import (
    RUN_TRANSITIONS,
    AttemptState,
    Condition,
    RunState,
    submission_id,
)
from rayjobs.queue_store import QueueStore
from rayjobs.run_service import ATTEMPT_LOOP, RUN_NEWS
from rayjobs.snapshot import NO_ROOM_SINCE, AdmissionSnapshot, WaitingRun
from rayjobs.tables import AttemptRow, DecisionRow, JobRevisionRow, RunRow
from rayjobs.usage_rows import open_usage

LOOK_EVERY_S = EVALUATE_EVERY.total_seconds()
"""Nothing has to change for a plan to change: windows open, waits run out (policy.md §2)."""
WORTH_TELLING_S = 5.0
"""By how much a predicted start has to move."""
REDISPATCH = OnClusterLoss.REDISPATCH
_MOVING = frozenset({"attempts", "drivers", "limit", "run", NO_ROOM_SINCE})
"""In the params of a reason, what changes as the queue moves."""


class AdmissionReconciler(Reconciler[AdmissionSnapshot, AdmissionPlan, Sequence[Wait]]):
    """`apply` skips what was changed since the snapshot: a stopped run is not started, and is seen anew next time."""

    name = QUEUE_LOOP
    relist_s = LOOK_EVERY_S
    concurrency = 1
    rest = 2.0
    """A look costs more the more runs wait, and every submission hints: without a rest a burst would starve itself."""

    def __init__(self, fleet: Fleet, hints: Hints, lease_ttl_s: int | None = None) -> None:
        """`lease_ttl_s` is of the leases this installation gives; None: clusters have no address to ask for one."""
        self._lease_ttl_s = lease_ttl_s
        self._fleet = fleet
        self._queue = QueueStore()
        self._hints = hints

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        del session
        return [QUEUE_KEY]

    async def load(self, session: AsyncSession, key: str) -> AdmissionSnapshot | None:
        del key
        snapshot = await load_admission(session, self._fleet, self._queue)
        return snapshot if snapshot.runs else None

    def decide(self, snapshot: AdmissionSnapshot, now: datetime) -> AdmissionPlan | None:
        return plan_admission(snapshot, now)

    async def act(self, plan: AdmissionPlan) -> Sequence[Wait]:
        """Which waits are news: whatever else placing a run sets off in the world is its attempt's business."""
        return [wait for one in plan.waiting for wait in _news_of(one)]

    def changes(self, plan: AdmissionPlan, outcome: Sequence[Wait]) -> bool:
        return bool(plan.starts or plan.give_ups or outcome)

    async def apply(self, session: AsyncSession, plan: AdmissionPlan, outcome: Sequence[Wait], now: datetime) -> None:
        runs = [*(one.run for one in plan.starts), *(one.run for one in plan.give_ups), *(one.run for one in outcome)]
        present = await versions(session, RunRow, [run.id for run in runs])
        unchanged = {run.id for run in runs if present.get(run.id) == run.version}
        starts = [start for start in plan.starts if start.run.id in unchanged]
        leases = await self._leases(session, starts)
        started = [await self._start(session, start, leases.get(start.run.id), now) for start in starts]
        await open_usage(session, started)
        for wait in outcome:
            if wait.run.id in unchanged:
                self._wait(session, wait, now)
        for give_up in plan.give_ups:
            if give_up.run.id in unchanged:
                self._give_up(session, give_up, now)

    def again_s(self, plan: AdmissionPlan, outcome: Sequence[Wait]) -> float | None:
        del outcome
        return min(LOOK_EVERY_S, plan.next_look_s) if plan.waiting else None

    async def _leases(self, session: AsyncSession, starts: Sequence[Start]) -> dict[str, int | None]:
        """By run, of those that may move at all."""
        movable = {one.run.id: one for one in starts if one.policy and one.policy.on_cluster_loss is REDISPATCH}
        if not movable:
            return {}
        revision = (JobRevisionRow.job_id == RunRow.job_id) & (JobRevisionRow.revision == RunRow.job_revision)
        statement = select(RunRow.id, RunRow.tries, JobRevisionRow.spec).join(JobRevisionRow, revision)
        found: dict[str, int | None] = {}
        for run_id, tries, spec in await session.execute(statement.where(RunRow.id.in_(movable))):
            start = movable[run_id]
            found[run_id] = lease_ttl_of(
                run_mode=start.run.run_mode,
                policy=start.policy,
                retry=spec_from_json(spec).retry,
                tries=tries,
                can_call_back=start.can_call_back,
                ttl_s=self._lease_ttl_s,
            )
        return found

    async def _start(self, session: AsyncSession, start: Start, lease_ttl_s: int | None, now: datetime) -> AttemptRow:
        state, epoch = move(RUN_TRANSITIONS, start.run.state, RunState.STARTING), start.run.epoch + 1
        # What a driver asks for is its own from here on; a gang's and a cluster's places have yet to be there (R8).
        allocated_at = now if start.cluster_id is not None and not start.run.demand.bundles else None
        cluster_id, cluster, first = start.cluster_id, start.cluster, AttemptState.POSTING
        if cluster_id is None:
            made = await self._make_cluster(session, start.run.id)
            cluster_id, cluster, first = made.id, made.name, AttemptState.CLUSTER
        values: dict[str, Any] = {"state": state, "condition": None, "not_before": None, "epoch": epoch}
        values |= {"cluster": cluster, "cluster_id": cluster_id, "allocated_at": allocated_at}
        update_last(session, RunRow, start.run.id, start.run.version, **values)
        attempt = AttemptRow(
            id=submission_id(start.run.id, epoch),
            run_id=start.run.id,
            epoch=epoch,
            cluster_id=cluster_id,
            cluster=cluster,
            demand=run_store.demand_to_json(replace(start.run.demand, resources=start.amount)),
            placement={node: run_store.resources_to_json(amount) for node, amount in start.placement.items()},
            state=first,
            state_since=now,
            created_at=now,
            allocated_at=allocated_at,
            lost_timeout_s=start.lost_timeout_s,
            on_cluster_loss=start.policy.on_cluster_loss if start.policy else None,
            window_ends_at=start.window_ends_at,
            lease_ttl_s=lease_ttl_s,
            posted_at=None if first is AttemptState.CLUSTER else now,
        )
        session.add(attempt)
        record(session, start.run.id, "STARTING", at=now, cluster=cluster, attempt=attempt.id)
        _keep_decision(session, start.run, start.decision, now)
        self._hints.send(session, RUN_NEWS, start.run.id)
        self._hints.send(session, ATTEMPT_LOOP, attempt.id)
        return attempt

    async def _make_cluster(self, session: AsyncSession, run_id: str) -> Cluster:
        run = await session.get_one(RunRow, run_id)
        statement = select(JobRevisionRow.spec).where(
            JobRevisionRow.job_id == run.job_id, JobRevisionRow.revision == run.job_revision
        )
        spec = spec_from_json((await session.scalars(statement)).one())
        try:
            return await self._fleet.create_for_run(session, run, spec)
        except Conflict as error:
            if error.code == "QUOTA_INSUFFICIENT":  # somebody started a cluster in the same group since the snapshot
                raise Superseded from error
            raise

    def _wait(self, session: AsyncSession, wait: Wait, now: datetime) -> None:
        run, reason = wait.run, wait.reason
        condition = run_store.condition_to_json(wait.condition(now))
        update_last(session, RunRow, run.id, run.version, state=_waiting(run.state), condition=condition)
        self._hints.send(session, RUN_NEWS, run.id)
        if _begins(wait):
            record(session, run.id, "WAITING", at=now, code=reason.code, params=dict(reason.params))
        if _begins(wait) or _seen(run.condition) != _seen(reason):
            _keep_decision(session, run, wait.decision, now)

    def _give_up(self, session: AsyncSession, give_up: GiveUp, now: datetime) -> None:
        run, end = give_up.run, give_up.end
        state = move(RUN_TRANSITIONS, run.state, end.run_state)
        values = {"state": state, "condition": None, "end": run_store.end_to_json(end), "ended_at": now}
        update_last(session, RunRow, run.id, run.version, **values)
        record(session, run.id, state, at=now, code=end.code)
        self._hints.send(session, RUN_NEWS, run.id)


def _waiting(state: RunState) -> RunState:
    return state if state is RunState.WAITING else move(RUN_TRANSITIONS, state, RunState.WAITING)


def _begins(wait: Wait) -> bool:
    return wait.run.condition is None or wait.run.condition.code != wait.reason.code


def _seen(why: Condition | Reason | None) -> object:
    """Of a cluster group, as far as people are told: the decision that is shown beside it must not be older."""
    return [why.params.get(name) for name in ("members", "opened", "revision")] if why else None


def _news_of(waiting: Waiting) -> Iterator[Wait]:
    """Only what tells people something new is written: not that the queue before a run has moved."""
    lasting = _lasting(waiting.reason.params)
    return (wait for wait in waiting.one_by_one if _is_news(wait, lasting))


def _is_news(wait: Wait, lasting: Mapping[str, Any]) -> bool:
    known = wait.run.condition
    if wait.run.state is RunState.SUBMITTED or known is None or _begins(wait) or _is_predicted_anew(known, wait):
        return True
    return known.params != wait.reason.params and _lasting(known.params) != lasting


def _lasting(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in params.items() if key not in _MOVING}


def _is_predicted_anew(known: Condition, wait: Wait) -> bool:
    before, after = known.predicted_start, wait.predicted_start
    if before is None or after is None:
        return before is not after
    return abs((after - before).total_seconds()) >= WORTH_TELLING_S


def _keep_decision(session: AsyncSession, run: WaitingRun, decision: Mapping[str, Any], now: datetime) -> None:
    insert_last(session, DecisionRow, run_id=run.id, evaluated_at=now, decision=dict(decision))
