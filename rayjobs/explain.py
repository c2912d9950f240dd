"""What would become of a run of this job if it were submitted now: the admission's own decision, nothing stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.quota import ClusterUse
from kernel.actor import Actor
from kernel.reasons import Reason
from rayjobs import run_store
from rayjobs.decide.admit import plan_admission
from rayjobs.fleet import Fleet
from rayjobs.model.job import JobSpec
from rayjobs.model.run import End, RunState
from rayjobs.queue_store import QueueStore
from rayjobs.run_service import demand_by
from rayjobs.snapshot import AdmissionSnapshot, Held, Load, WaitingRun

WOULD_BE = "run_of_this_job"


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Exactly one of the three: it would start (`decision` says where), wait (`reason`), or fail (`end`)."""

    decision: Mapping[str, Any] | None
    reason: Reason | None = None
    end: End | None = None


async def load_admission(session: AsyncSession, fleet: Fleet, queue: QueueStore | None = None) -> AdmissionSnapshot:
    queue = queue or QueueStore()
    views = await fleet.views(session)
    runs = await queue.waiting_runs(session)
    load = await queue.ledger(session)  # after the runs: what they have lost is known to be stale by then
    return AdmissionSnapshot(
        runs=tuple(runs),
        clusters={view.id: view for view in views},
        groups=await fleet.groups(session),
        resource_groups=await fleet.resource_groups(session),
        load=load,
        quota_held=_quota_held(await fleet.quota_held(session), load),
        moves=await queue.moves(session, runs),
    )


def _quota_held(uses: Mapping[str, tuple[ClusterUse, ...]], load: Mapping[str, Load]) -> Mapping[str, tuple[Held, ...]]:
    """A cluster that was made for a run gives its quota back when the run has ended."""
    ends_by = {held.run: held.ends_by for one in load.values() for held in one.held}
    return {
        group: tuple(Held(run=use.run, amount=use.amount, ends_by=ends_by.get(use.run)) for use in held)
        for group, held in uses.items()
    }


async def suppose(
    session: AsyncSession, fleet: Fleet, actor: Actor, spec: JobSpec, now: datetime
) -> tuple[WaitingRun, AdmissionSnapshot]:
    """A run of this job as they would submit it now, and what it would be decided on by."""
    cluster = await fleet.reference(session, spec.cluster) if spec.cluster else None
    run = replace(run_by(actor, spec, now), cluster_id=cluster.id if cluster else None)
    return run, await load_admission(session, fleet)


def run_by(actor: Actor, spec: JobSpec, now: datetime) -> WaitingRun:
    """One of this job that they submit at that moment; which cluster its name means, whoever asks may know."""
    return WaitingRun(
        id=WOULD_BE,
        version=1,
        run_mode=spec.run_mode,
        state=RunState.SUBMITTED,
        queue=run_store.queue_of(spec),
        enqueued_at=now,
        demand=demand_by(actor, spec),
        priority=spec.priority,
        max_wait_s=spec.max_wait_s,
        max_runtime_s=spec.max_runtime_s,
        start_timeout_s=run_store.start_timeout_of(spec),
        cluster=spec.cluster,
        cluster_group=spec.cluster_group,
        resource_group=spec.resource_group,
    )


def explain_run(snapshot: AdmissionSnapshot, run: WaitingRun, now: datetime) -> Explanation:
    """What would become of it if it waited with those that do."""
    plan = plan_admission(replace(snapshot, runs=(*snapshot.runs, run)), now)
    for start in plan.starts:
        if start.run.id == run.id:
            return Explanation(decision=start.decision)
    for wait in plan.waits:
        if wait.run.id == run.id:
            return Explanation(decision=wait.decision, reason=wait.reason)
    (give_up,) = [one for one in plan.give_ups if one.run.id == run.id]
    return Explanation(decision=None, end=give_up.end)
