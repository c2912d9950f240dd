"""Pure: the stretches of a run's life as people read them, each with when it began and ended."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from rayjobs.model.job import RunMode


class PhaseName(StrEnum):
    QUEUE = "queue"
    CLUSTER = "cluster"
    """Of its own: until the first of its nodes is there."""
    NODES = "nodes"
    ENVIRONMENT = "environment"
    GANG = "gang"
    """Until every task has its place."""
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
    """The instants that a run's row and its present attempt's keep; before that attempt there is `queued_at` alone.

    `placed_at` ends the queue, `first_node_at` and `up_at` are of a cluster of its own, `driver_at` is when the driver
    began, `started_at` when the command or all tasks could, `over_at` the verdict, `released_at` the last step.
    """

    run_mode: RunMode
    is_gang: bool = False
    queued_at: datetime
    placed_at: datetime | None = None
    first_node_at: datetime | None = None
    up_at: datetime | None = None
    driver_at: datetime | None = None
    started_at: datetime | None = None
    over_at: datetime | None = None
    released_at: datetime | None = None
    nodes_up: int = 0
    nodes_wanted: int = 0


def tell_phases(times: Times) -> list[Phase]:
    own_cluster = times.run_mode is RunMode.ON_DEMAND
    first_node_at = times.first_node_at or times.up_at
    driver_at = times.driver_at if times.is_gang else times.started_at
    marks: list[tuple[PhaseName, datetime | None, datetime | None]] = [
        (PhaseName.QUEUE, times.queued_at, times.placed_at),
    ]
    if own_cluster:
        marks.append((PhaseName.CLUSTER, times.placed_at, first_node_at))
        marks.append((PhaseName.NODES, first_node_at, times.up_at))
    marks.append((PhaseName.ENVIRONMENT, times.up_at if own_cluster else times.placed_at, driver_at))
    if times.is_gang:
        marks.append((PhaseName.GANG, driver_at, times.started_at))
    marks.append((PhaseName.RUNNING, times.started_at, times.over_at))
    phases = [_phase(name, start, end, times) for name, start, end in marks]
    return [*phases, _release(times)]


def _phase(name: PhaseName, start: datetime | None, end: datetime | None, times: Times) -> Phase:
    detail = {"nodes_up": times.nodes_up, "nodes_wanted": times.nodes_wanted} if name is PhaseName.NODES else None
    if start is None:
        state = PhaseState.PENDING if times.over_at is None else PhaseState.SKIPPED
        return Phase(name=name, state=state, detail=detail, started_at=None, ended_at=None)
    end = end or times.over_at
    state = PhaseState.ACTIVE if end is None else PhaseState.DONE
    return Phase(name=name, state=state, detail=detail, started_at=start, ended_at=end)


def _release(times: Times) -> Phase:
    if times.over_at is None or times.placed_at is None:
        state = PhaseState.PENDING if times.over_at is None else PhaseState.SKIPPED
        return Phase(name=PhaseName.RELEASE, state=state, detail=None, started_at=None, ended_at=None)
    state = PhaseState.DONE if times.released_at else PhaseState.ACTIVE
    return Phase(name=PhaseName.RELEASE, state=state, detail=None, started_at=times.over_at, ended_at=times.released_at)
