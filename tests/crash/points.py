"""Where a server is to die: at one stage of the step that makes one move of a run or of its attempt."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernel.loop import Stage, Step
from rayjobs.decide.admit import AdmissionPlan
from rayjobs.decide.attempt import Do
from rayjobs.model.run import ATTEMPT_TRANSITIONS, RUN_TRANSITIONS, AttemptState, RunState
from rayjobs.reconcile.attempts import AttemptPlan


@dataclass(frozen=True, slots=True)
class Move:
    """One arrow of a state table."""

    of: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.of}:{self.source}->{self.target}"


def run_move(source: RunState, target: RunState) -> Move:
    return Move("run", source, target)


def attempt_move(source: AttemptState, target: AttemptState) -> Move:
    return Move("attempt", source, target)


DELETION_ORDERED = attempt_move(AttemptState.RELEASING, AttemptState.RELEASING)
"""No move of the table, but a step all the same: the run's own cluster is marked to be deleted."""


def all_moves() -> set[Move]:
    return {*_arrows("run", RUN_TRANSITIONS), *_arrows("attempt", ATTEMPT_TRANSITIONS)}


@dataclass(frozen=True, slots=True)
class Point:
    move: Move
    stage: Stage
    carries: Move | None = None
    """The move of the run that the same step makes."""

    def __str__(self) -> str:
        return f"{self.move}:{self.stage}"

    def is_met(self, step: Step) -> bool:
        if step.stage is not self.stage:
            return False
        made = set(_moves_of(step))
        carried = self.carries is None or self.stage is Stage.DECIDED or self.carries in made
        return self.move in made and carried


def _arrows(of: str, table: Mapping[Any, frozenset[Any]]) -> Iterator[Move]:
    return (Move(of, source, target) for source, targets in table.items() for target in targets)


def _moves_of(step: Step) -> Iterator[Move]:
    if isinstance(step.plan, AdmissionPlan):
        yield from _moves_of_admission(step.plan)
    elif isinstance(step.plan, AttemptPlan) and step.stage is Stage.DECIDED:
        yield from () if step.plan.action.do is Do.WAIT else _moves_ahead(step.plan)
    elif isinstance(step.plan, AttemptPlan):
        view = step.plan.view
        if step.outcome.state is not None:
            yield attempt_move(view.state, step.outcome.state)
        if step.outcome.delete_cluster:
            yield DELETION_ORDERED
        if step.outcome.run_state is not None:
            yield run_move(view.run_state, step.outcome.run_state)


def _moves_of_admission(plan: AdmissionPlan) -> Iterator[Move]:
    for start in plan.starts:
        yield run_move(start.run.state, RunState.STARTING)
    for wait in plan.waits:
        yield run_move(wait.run.state, RunState.WAITING)
    for give_up in plan.give_ups:
        yield run_move(give_up.run.state, give_up.end.run_state)


def _moves_ahead(plan: AttemptPlan) -> Iterator[Move]:
    """What a look will find is not known before it: it may make any move of the table, or none."""
    view, target = plan.view, plan.action.to
    targets = {view.state, *ATTEMPT_TRANSITIONS[view.state]} if target is None else {target}
    return (attempt_move(view.state, one) for one in targets)
