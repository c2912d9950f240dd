"""Pure: the stretches of a run's life as people read them, each with when it began and ended."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from rayjobs.model.job import RunMode


class PhaseName(StrEnum):
    QUEUE = "queue"
    CLUSTER = "cluster"
    ENVIRONMENT = "environment"
    RUNNING = "running"
    RELEASE = "release"


class PhaseState(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"
    DONE = "done"
    SKIPPED = "skipped"
    """The run ended before it came to this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    name: PhaseName
    state: PhaseState
    detail: dict[str, Any] | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """The instants a run's row and its latest attempt's keep. `over_at` is the verdict, `released_at` the last step."""

    run_mode: RunMode
    enqueued_at: datetime
    allocated_at: datetime | None
    posted_at: datetime | None
    started_at: datetime | None
    over_at: datetime | None
    released_at: datetime | None
    nodes_up: int = 0
    nodes_wanted: int = 0


def tell_phases(times: Times) -> list[Phase]:
    own_cluster = times.run_mode is RunMode.ON_DEMAND
    marks: list[tuple[PhaseName, datetime | None, datetime | None]] = [
        (PhaseName.QUEUE, times.enqueued_at, times.allocated_at)
    ]
    if own_cluster:
        marks.append((PhaseName.CLUSTER, times.allocated_at, times.posted_at))
    sent = times.posted_at if own_cluster else times.allocated_at
    marks.append((PhaseName.ENVIRONMENT, sent, times.started_at))
    marks.append((PhaseName.RUNNING, times.started_at, times.over_at))
    phases = [_phase(name, start, end, times) for name, start, end in marks]
    return [*phases, _release(times)]


def _phase(name: PhaseName, start: datetime | None, end: datetime | None, times: Times) -> Phase:
    detail = {"nodes_up": times.nodes_up, "nodes_wanted": times.nodes_wanted} if name is PhaseName.CLUSTER else None
    if start is None:
        state = PhaseState.PENDING if times.over_at is None else PhaseState.SKIPPED
        return Phase(name=name, state=state, detail=detail, started_at=None, ended_at=None)
    end = end or times.over_at
    state = PhaseState.ACTIVE if end is None else PhaseState.DONE
    return Phase(name=name, state=state, detail=detail, started_at=start, ended_at=end)


def _release(times: Times) -> Phase:
    if times.over_at is None or times.allocated_at is None:
        state = PhaseState.PENDING if times.over_at is None else PhaseState.SKIPPED
        return Phase(name=PhaseName.RELEASE, state=state, detail=None, started_at=None, ended_at=None)
    state = PhaseState.DONE if times.released_at else PhaseState.ACTIVE
    return Phase(name=PhaseName.RELEASE, state=state, detail=None, started_at=times.over_at, ended_at=times.released_at)
