"""What the policy of a cluster group would do: at another time, or as somebody means to change it. Nothing is stored.

The plans are those of admission itself; only the snapshot they are made from is another one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.decide.decision import Outcome
from cluster_groups.model.group import ClusterGroup
from kernel.actor import Actor
from kernel.errors import InvalidInput, NotFound, raise_problems
from rayjobs.decide.admit import AdmissionPlan, plan_admission
from rayjobs.explain import explain_run, run_by
from rayjobs.job_check import check_requirements
from rayjobs.job_service import JobService
from rayjobs.model.job import JobSpec, Requirements, RunMode
from rayjobs.snapshot import AdmissionSnapshot

FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """`cluster` of a run that starts, `code` of what it waits for or ends by."""

    outcome: str
    cluster: str | None = None
    code: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingFate:
    """Of a run that now waits in the group: by the policy as it is, now, and as it was asked for."""

    run: str
    before: Fate
    after: Fate


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    decision: Mapping[str, Any]
    waiting_runs: tuple[WaitingFate, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Supposition:
    """`group` as it is or as drafted; `spec` is what the run to be decided on asks for, that `actor` would submit."""

    group: ClusterGroup
    spec: JobSpec
    actor: Actor
    at: datetime


async def sample_of(session: AsyncSession, jobs: JobService, job: str | None, needs: Requirements) -> JobSpec:
    """What a run of this job asks for, or else a plain one that needs this."""
    if job is None:
        spec = JobSpec(name="", run_mode=RunMode.CLUSTER_GROUP, requirements=needs)
        raise_problems(check_requirements(spec))
        return spec
    if needs != Requirements():
        raise InvalidInput("JOB_OR_REQUIREMENTS", pointer="/requirements")
    try:
        return (await jobs.get(session, job)).spec
    except NotFound as error:
        raise InvalidInput("REFERENCE_NOT_FOUND", pointer="/job", kind="job", ref=job) from error


def what_if(snapshot: AdmissionSnapshot, supposed: Supposition, now: datetime) -> Simulation:
    group, at = supposed.group, supposed.at
    # Of how long they have waited for what nothing is known at a time that was before.
    runs = snapshot.runs if at >= now else tuple(replace(run, condition=None) for run in snapshot.runs)
    there = replace(snapshot, runs=runs, groups={**snapshot.groups, group.name: group})
    spec = _through(group, supposed.spec)
    before = dict(_fates(plan_admission(snapshot, now)))
    after = dict(_fates(plan_admission(there, at)))
    waiting = [run.id for run in snapshot.runs if run.cluster_group == group.name]
    decision = explain_run(there, run_by(supposed.actor, spec, at), at).decision
    assert decision is not None  # noqa: S101 - the group is there, and a new run has waited for nothing too long
    return Simulation(
        decision=decision,
        waiting_runs=tuple(WaitingFate(run=run, before=before[run], after=after[run]) for run in waiting),
    )


def _through(group: ClusterGroup, spec: JobSpec) -> JobSpec:
    """The same work by way of the group, where there are no priorities and no resource groups."""
    elsewhere = replace(spec, cluster=None, resource_group=None, priority=None)
    return replace(elsewhere, run_mode=RunMode.CLUSTER_GROUP, cluster_group=group.name)


def _fates(plan: AdmissionPlan) -> Iterator[tuple[str, Fate]]:
    for start in plan.starts:
        yield start.run.id, Fate(outcome=Outcome.DISPATCHED, cluster=start.cluster)
    for one in plan.waiting:
        waits = Fate(outcome=Outcome.WAITING, code=one.reason.code)
        yield from ((run.id, waits) for run in one.runs)
    for give_up in plan.give_ups:
        yield give_up.run.id, Fate(outcome=FAILED, code=give_up.end.code)
