"""The loop that gives waiting runs their place: snapshot → plan_admission → one guarded write for each outcome."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import Cluster
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP
from kernel.db import guarded_update, guarded_updates, insert_last
from kernel.errors import Conflict
from kernel.events import record
from kernel.loop import Hints, Reconciler, Superseded
from kernel.reasons import Reason
from kernel.states import move
from rayjobs import run_store
from rayjobs.decide.admit import AdmissionPlan, GiveUp, Start, Wait, plan_admission
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
from rayjobs.run_service import ATTEMPT_LOOP, RUN_NEWS
from rayjobs.snapshot import AdmissionSnapshot, WaitingRun
from rayjobs.tables import AttemptRow, DecisionRow, JobRevisionRow, RunRow
from rayjobs.usage_rows import open_usage

LOOK_EVERY_S = 15.0
"""Nothing has to change for a plan to change: windows open, waits run out (policy.md §2)."""
WORTH_TELLING_S = 5.0
"""By how much a predicted start has to move."""


class AdmissionReconciler(Reconciler[AdmissionSnapshot, AdmissionPlan, None]):
    """`apply` skips what was changed since the snapshot: a stopped run is not started, and is seen anew next time."""

    name = QUEUE_LOOP
    relist_s = LOOK_EVERY_S
    concurrency = 1
    rest = 4.0
    """A look costs more the more runs wait, and every submission hints: without a rest a burst would starve itself."""

    def __init__(self, fleet: Fleet, hints: Hints) -> None:
        self._fleet = fleet
        self._hints = hints

    async def list_keys(self, session: AsyncSession) -> Sequence[str]:
        del session
        return [QUEUE_KEY]

    async def load(self, session: AsyncSession, key: str) -> AdmissionSnapshot | None:
        del key
        snapshot = await load_admission(session, self._fleet)
        return snapshot if snapshot.runs else None

    def decide(self, snapshot: AdmissionSnapshot, now: datetime) -> AdmissionPlan | None:
        return plan_admission(snapshot, now)

    async def act(self, plan: AdmissionPlan) -> None:
        """Placing a run is a matter of rows alone; what it sets off in the world is its attempt's business."""
        del plan

    def changes(self, plan: AdmissionPlan, outcome: None) -> bool:
        del outcome
        return bool(plan.starts or plan.give_ups or any(_is_news(wait) for wait in plan.waits))

    async def apply(self, session: AsyncSession, plan: AdmissionPlan, outcome: None, now: datetime) -> None:
        del outcome
        started = [attempt for start in plan.starts if (attempt := await self._start(session, start, now))]
        await open_usage(session, started)
        await self._wait(session, [wait for wait in plan.waits if _is_news(wait)], now)
        for give_up in plan.give_ups:
            await self._give_up(session, give_up, now)

    def again_s(self, plan: AdmissionPlan, outcome: None) -> float | None:
        del outcome
        return min(LOOK_EVERY_S, plan.next_look_s) if plan.waiting else None

    async def _start(self, session: AsyncSession, start: Start, now: datetime) -> AttemptRow | None:
        """None: somebody was faster."""
        state, epoch = move(RUN_TRANSITIONS, start.run.state, RunState.STARTING), start.run.epoch + 1
        # What a driver asks for is its own from here on; a gang's and a cluster's places have yet to be there (R8).
        allocated_at = now if start.cluster_id is not None and not start.run.demand.bundles else None
        values: dict[str, Any] = {"state": state, "condition": None, "not_before": None, "epoch": epoch}
        if start.cluster_id is not None:
            values |= {"cluster": start.cluster, "cluster_id": start.cluster_id}
        if not await guarded_update(
            session, RunRow, start.run.id, start.run.version, **values, allocated_at=allocated_at
        ):
            return None
        cluster_id, cluster, first = start.cluster_id, start.cluster, AttemptState.POSTING
        if cluster_id is None:
            made = await self._make_cluster(session, start.run.id)
            cluster_id, cluster, first = made.id, made.name, AttemptState.CLUSTER
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
            posted_at=None if first is AttemptState.CLUSTER else now,
        )
        session.add(attempt)
        record(session, start.run.id, "STARTING", at=now, cluster=cluster, attempt=attempt.id)
        _keep_decision(session, start.run, start.decision, now)
        self._hints.send(session, RUN_NEWS, start.run.id)
        self._hints.send(session, ATTEMPT_LOOP, attempt.id)
        return attempt

    async def _make_cluster(self, session: AsyncSession, run_id: str) -> Cluster:
        run = await session.get_one(RunRow, run_id, populate_existing=True)
        statement = select(JobRevisionRow.spec).where(
            JobRevisionRow.job_id == run.job_id, JobRevisionRow.revision == run.job_revision
        )
        spec = spec_from_json((await session.scalars(statement)).one())
        try:
            made = await self._fleet.create_for_run(session, run, spec)
        except Conflict as error:  # somebody started a cluster in the same group since the snapshot
            raise Superseded from error
        run.cluster, run.cluster_id = made.name, made.id
        return made

    async def _wait(self, session: AsyncSession, waits: Sequence[Wait], now: datetime) -> None:
        """Few statements for many runs: a burst has hundreds that wait for the same."""
        alike: dict[tuple[int, RunState, str], list[Wait]] = {}
        for wait in waits:
            condition = json.dumps(run_store.condition_to_json(_condition(wait, now)))
            alike.setdefault((wait.run.version, _waiting(wait.run.state), condition), []).append(wait)
        for (version, state, condition), group in alike.items():
            values = {"state": state, "condition": json.loads(condition)}
            written = await guarded_updates(session, RunRow, [wait.run.id for wait in group], version, **values)
            for wait in group:
                if wait.run.id in written:
                    self._tell_waiting(session, wait, now)

    def _tell_waiting(self, session: AsyncSession, wait: Wait, now: datetime) -> None:
        run, reason = wait.run, wait.reason
        self._hints.send(session, RUN_NEWS, run.id)
        if _begins(wait):
            record(session, run.id, "WAITING", at=now, code=reason.code, params=dict(reason.params))
        if _begins(wait) or _members(run.condition) != _members(reason):
            _keep_decision(session, run, wait.decision, now)

    async def _give_up(self, session: AsyncSession, give_up: GiveUp, now: datetime) -> None:
        run, end = give_up.run, give_up.end
        state = move(RUN_TRANSITIONS, run.state, end.run_state)
        values = {"state": state, "condition": None, "end": run_store.end_to_json(end), "ended_at": now}
        if await guarded_update(session, RunRow, run.id, run.version, **values):
            record(session, run.id, state, at=now, code=end.code)
            self._hints.send(session, RUN_NEWS, run.id)


def _waiting(state: RunState) -> RunState:
    return state if state is RunState.WAITING else move(RUN_TRANSITIONS, state, RunState.WAITING)


def _condition(wait: Wait, now: datetime) -> Condition:
    """It waits since it began to wait for this."""
    known, reason = wait.run.condition, wait.reason
    since = known.since if known is not None and known.code == reason.code else now
    return Condition(
        code=reason.code,
        owner=reason.owner,
        params=reason.params,
        since=since,
        predicted_start=wait.predicted_start,
    )


def _begins(wait: Wait) -> bool:
    return wait.run.condition is None or wait.run.condition.code != wait.reason.code


def _members(why: Condition | Reason | None) -> object:
    """What each member of a group was passed over for: the decision that is shown beside it must not be older."""
    return why.params.get("members") if why else None


def _is_news(wait: Wait) -> bool:
    """Only what tells people something new is written: not that the queue before a run has moved."""
    known = wait.run.condition
    if wait.run.state is RunState.SUBMITTED or known is None or _begins(wait) or _is_predicted_anew(known, wait):
        return True
    moving = {"drivers", "limit", "run"}
    before = {key: value for key, value in known.params.items() if key not in moving}
    return before != {key: value for key, value in wait.reason.params.items() if key not in moving}


def _is_predicted_anew(known: Condition, wait: Wait) -> bool:
    before, after = known.predicted_start, wait.predicted_start
    if before is None or after is None:
        return before is not after
    return abs((after - before).total_seconds()) >= WORTH_TELLING_S


def _keep_decision(session: AsyncSession, run: WaitingRun, decision: Mapping[str, Any], now: datetime) -> None:
    insert_last(session, DecisionRow, run_id=run.id, evaluated_at=now, decision=dict(decision))
