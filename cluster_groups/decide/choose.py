"""Which member of a cluster group takes a run now, and why each of the others does not (policy.md §2, §6).

What exists of policy.md so far: the hard filters in their order, then the first member in order that has room.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Any

from cluster_groups.decide.place import never_fits
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import Candidate, ClusterGroup, Member
from cluster_groups.model.health import HealthStatus
from kernel.clock import instant
from kernel.reasons import Owner, Reason

EVALUATE_EVERY = timedelta(seconds=15)

Match = Callable[[ClusterView], Reason | None]
"""`match_cluster` for one demand."""

_INCOMPATIBLE = frozenset({"REQUIREMENT_MISMATCH", "NEVER_FITS", "GANG_NEVER_FITS"})
_SWITCHED_OFF = frozenset({"DISABLED", "CLUSTER_MISSING", "CLUSTER_NOT_RUNNING", "CORDONED"})


class Outcome(StrEnum):
    DISPATCHED = "dispatched"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The record of policy.md §6, less the run. `waiting` is set exactly when nothing is chosen."""

    cluster_group: str
    revision: int
    evaluated_at: datetime
    timezone: str
    chosen: str | None
    because: str
    waiting: Reason | None
    candidates: tuple[Candidate, ...]

    @property
    def outcome(self) -> Outcome:
        return Outcome.WAITING if self.chosen is None else Outcome.DISPATCHED

    def to_json(self) -> dict[str, Any]:
        waits = self.chosen is None
        return {
            "cluster_group": self.cluster_group,
            "revision": self.revision,
            "evaluated_at": instant(self.evaluated_at),
            "timezone": self.timezone,
            "outcome": str(self.outcome),
            "chosen": self.chosen,
            "because": self.because,
            "reason": None if self.waiting is None else {"code": self.waiting.code, "params": self.waiting.params},
            "next_evaluation_at": instant(self.evaluated_at + EVALUATE_EVERY) if waits else None,
            "candidates": [
                {
                    "cluster": one.cluster,
                    "eligible": one.eligible,
                    "reason": one.reason,
                    "fits_now": one.fits_now,
                    "rank": one.rank,
                    "facts": one.facts,
                }
                for one in self.candidates
            ],
        }


def match_cluster(view: ClusterView, demand: Demand) -> Reason | None:
    """Why this cluster, even idle, could not take such a run."""
    if reason := mismatch(view, demand):
        return reason
    return never_fits(view, demand) if demand.bundles else _never_fits(view, demand)


def mismatch(view: ClusterView, demand: Demand) -> Reason | None:
    """Why this cluster, however large, is not of the kind that was asked for."""
    if demand.gpu_types and not view.capacity.gpu.keys() & set(demand.gpu_types):
        return _differs(view, "gpu_types", list(demand.gpu_types), sorted(view.capacity.gpu))
    for key, wanted in demand.labels.items():
        if view.labels.get(key) != wanted:
            return _differs(view, f"label {key}", wanted, view.labels.get(key))
    for name in ("ray_version", "python_version"):
        wanted, has = getattr(demand, name), getattr(view, name)
        if wanted is not None and not _is_version(has, wanted):
            return _differs(view, name, wanted, has)
    return None


def choose_member(
    group: ClusterGroup,
    views: Mapping[str, ClusterView],
    lacks: Mapping[str, Reason | None],
    now: datetime,
    match: Match,
) -> Decision:
    """`views` by cluster name; `lacks` says for each of them what the run lacks there now, None where it fits.

    Who asks for many runs hands in a `match` that remembers what it said.
    """
    ordered = sorted(group.members, key=lambda member: (member.order, member.cluster))
    candidates: list[Candidate] = []
    for member in ordered:
        rank = 1 + sum(one.eligible for one in candidates)
        view = views.get(member.cluster)
        refusal = refusal_of(member, view, match)
        candidates.append(_candidate(member.cluster, refusal, lacks.get(member.cluster), rank))
    chosen = next((one.cluster for one in candidates if one.fits_now), None)
    return Decision(
        cluster_group=group.name,
        revision=group.revision,
        evaluated_at=now,
        timezone=group.timezone,
        chosen=chosen,
        because=_because(chosen, candidates),
        waiting=None if chosen else _waiting(group, candidates, lacks),
        candidates=tuple(candidates),
    )


def refusal_of(member: Member, view: ClusterView | None, match: Match) -> Reason | None:
    """The first hard filter of policy.md §2 that the member fails."""
    known = {"cluster": member.cluster}
    if not member.enabled:
        return Reason(code="DISABLED", owner=Owner.USER, params=known)
    if view is None or view.on_demand:
        return Reason(code="CLUSTER_MISSING", owner=Owner.USER, params=known)
    if view.state is not ClusterState.RUNNING:
        return Reason(code="CLUSTER_NOT_RUNNING", owner=Owner.USER, params={**known, "state": str(view.state)})
    if view.health is not HealthStatus.HEALTHY:
        failure = view.health_failure.code if view.health_failure else None
        return Reason(code=f"HEALTH_{view.health}", params={**known, "failure": failure})
    if member.cordoned or view.cordoned:
        return Reason(code="CORDONED", owner=Owner.USER, params=known)
    return match(view)


def _candidate(cluster: str, refusal: Reason | None, lack: Reason | None, rank: int) -> Candidate:
    if refusal is not None:
        return Candidate(cluster=cluster, eligible=False, reason=refusal.code, facts=dict(refusal.params))
    facts = {} if lack is None else {"lacks": lack.code, **lack.params}
    return Candidate(cluster=cluster, eligible=True, fits_now=lack is None, rank=rank, facts=facts)


def _differs(view: ClusterView, what: str, wanted: object, has: object) -> Reason:
    params = {"cluster": view.name, "what": what, "wanted": wanted, "has": has}
    return Reason(code="REQUIREMENT_MISMATCH", owner=Owner.USER, params=params)


def _is_version(has: str | None, wanted: str) -> bool:
    """Asking for 3.11 takes any 3.11.x."""
    return has is not None and f"{has}.".startswith(f"{wanted}.")


def _never_fits(view: ClusterView, demand: Demand) -> Reason | None:
    asked, there = demand.resources, view.capacity
    pairs = {"cpu": (asked.cpu, there.cpu), "memory_gib": (asked.memory_gib, there.memory_gib)}
    cards = sum(asked.gpu.values())
    if cards:
        # One run takes accelerators of one type: the largest stock among those it accepts counts.
        accepted = demand.gpu_types or tuple(there.gpu)
        pairs["gpu"] = (cards, max((there.gpu.get(name, 0) for name in accepted), default=0))
    short = {name: {"wanted": wanted, "total": total} for name, (wanted, total) in pairs.items() if wanted > total}
    if not short:
        return None
    return Reason(code="NEVER_FITS", owner=Owner.USER, params={"cluster": view.name, "short": short})


def _because(chosen: str | None, candidates: list[Candidate]) -> str:
    if not candidates:
        return "The group has no members."
    if chosen is None:
        return f"No member can take the run now: {_told(candidates)}."
    before = list(takewhile(lambda one: one.cluster != chosen, candidates))
    passed_over = f" Passed over: {_told(before)}." if before else ""
    return f"{chosen} is the first of {len(candidates)} in order that can take the run now.{passed_over}"


def _told(candidates: list[Candidate]) -> str:
    return ", ".join(f"{one.cluster} ({one.reason or one.facts['lacks']})" for one in candidates)


def _waiting(group: ClusterGroup, candidates: list[Candidate], lacks: Mapping[str, Reason | None]) -> Reason:
    if not candidates:
        return Reason(code="GROUP_EMPTY", owner=Owner.USER, params={"cluster_group": group.name})
    for one in candidates:
        lack = lacks.get(one.cluster)
        if one.eligible and lack is not None:
            return lack
    reasons = {one.cluster: one.reason for one in candidates}
    usable = {reason for reason in reasons.values() if reason not in {"DISABLED", "CLUSTER_MISSING"}}
    params = {"cluster_group": group.name, "members": reasons}
    if usable and usable <= _INCOMPATIBLE:
        return Reason(code="GROUP_NO_COMPATIBLE_MEMBER", owner=Owner.USER, params=params)
    owner = Owner.USER if _SWITCHED_OFF & set(reasons.values()) else Owner.PLATFORM
    return Reason(code="GROUP_NO_HEALTHY_MEMBER", owner=owner, params=params)
