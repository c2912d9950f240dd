"""The server is killed at every boundary of a run's steps; another one finds one execution and the right end."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kernel.loop import Stage
from rayjobs.model.run import AttemptState, RunState
from tests.builders.waiting import wait_until
from tests.crash import scenarios
from tests.crash.points import DELETION_ORDERED, Move, Point, all_moves, attempt_move, run_move
from tests.crash.scenarios import GANG, ON_DEMAND, SECOND_TRY, Job, Scenario, a_job
from tests.crash.world import CLUSTER, END_TIMEOUT_S, World, a_world

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

R, A = RunState, AttemptState


@dataclass(frozen=True, kw_only=True)
class Case:
    """`carries` is the move of the run that the attempt's step makes as well."""

    move: Move
    scenario: Scenario
    end: RunState = R.SUCCEEDED
    executions: int = 1
    attempts: int = 1
    carries: Move | None = None
    job: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([str(self.move), *([str(self.carries)] if self.carries else [])])


CASES = [
    Case(move=run_move(R.SUBMITTED, R.STARTING), scenario=scenarios.straight),
    Case(move=run_move(R.SUBMITTED, R.WAITING), scenario=scenarios.held_back),
    Case(move=run_move(R.WAITING, R.STARTING), scenario=scenarios.held_back),
    Case(
        move=run_move(R.WAITING, R.QUEUE_TIMEOUT),
        scenario=scenarios.out_of_patience,
        end=R.QUEUE_TIMEOUT,
        executions=0,
        job={"max_wait_s": 1},
    ),
    Case(
        move=run_move(R.WAITING, R.FAILED),
        scenario=scenarios.without_target,
        end=R.FAILED,
        executions=0,
        job={"cluster": "unstarted"},
    ),
    Case(move=attempt_move(A.POSTING, A.PENDING), scenario=scenarios.straight),
    Case(
        move=attempt_move(A.POSTING, A.COLLECTING),
        scenario=scenarios.stopped_too_late,
        carries=run_move(R.STOPPING, R.SUCCEEDED),
    ),
    Case(
        move=attempt_move(A.POSTING, A.RELEASING),
        scenario=scenarios.without_package,
        end=R.FAILED,
        executions=0,
        carries=run_move(R.STARTING, R.FAILED),
        job={"package": "to be lost"},
    ),
    Case(
        move=attempt_move(A.PENDING, A.RUNNING),
        scenario=scenarios.straight,
        carries=run_move(R.STARTING, R.RUNNING),
    ),
    Case(move=attempt_move(A.PENDING, A.STOPPING), scenario=scenarios.stopped_unseen, end=R.STOPPED),
    Case(
        move=attempt_move(A.PENDING, A.COLLECTING),
        scenario=scenarios.ended_unseen,
        carries=run_move(R.STARTING, R.SUCCEEDED),
    ),
    Case(
        move=attempt_move(A.RUNNING, A.COLLECTING),
        scenario=scenarios.straight,
        carries=run_move(R.RUNNING, R.SUCCEEDED),
    ),
    Case(move=attempt_move(A.RUNNING, A.STOPPING), scenario=scenarios.stopped, end=R.STOPPED),
    Case(
        move=attempt_move(A.STOPPING, A.COLLECTING),
        scenario=scenarios.stopped,
        end=R.STOPPED,
        carries=run_move(R.STOPPING, R.STOPPED),
    ),
    Case(move=attempt_move(A.PENDING, A.PLACING), scenario=scenarios.straight, job=GANG),
    Case(
        move=attempt_move(A.PLACING, A.RUNNING),
        scenario=scenarios.straight,
        carries=run_move(R.STARTING, R.RUNNING),
        job=GANG,
    ),
    Case(move=attempt_move(A.PLACING, A.STOPPING), scenario=scenarios.stopped_placing, end=R.STOPPED, job=GANG),
    Case(
        move=attempt_move(A.PLACING, A.COLLECTING),
        scenario=scenarios.ended_placing,
        carries=run_move(R.STARTING, R.SUCCEEDED),
        job=GANG,
    ),
    Case(
        move=attempt_move(A.PENDING, A.COLLECTING),
        scenario=scenarios.ended_unseen,
        executions=2,
        attempts=2,
        carries=run_move(R.STARTING, R.WAITING),
        job=SECOND_TRY,
    ),
    Case(
        move=attempt_move(A.RUNNING, A.COLLECTING),
        scenario=scenarios.straight,
        executions=2,
        attempts=2,
        carries=run_move(R.RUNNING, R.WAITING),
        job=GANG | SECOND_TRY,
    ),
    Case(move=attempt_move(A.COLLECTING, A.RELEASING), scenario=scenarios.straight),
    Case(move=attempt_move(A.RELEASING, A.ENDED), scenario=scenarios.straight),
    Case(
        move=attempt_move(A.CLUSTER, A.RELEASING),
        scenario=scenarios.stopped_before_cluster,
        end=R.STOPPED,
        executions=0,
        job=ON_DEMAND,
    ),
]

OWN_CLUSTER = [
    Point(move, stage)
    for move in (attempt_move(A.CLUSTER, A.POSTING), DELETION_ORDERED, attempt_move(A.RELEASING, A.ENDED))
    for stage in Stage
]
"""One on-demand run through all of these: a cluster for each would take minutes."""

ONE_TRANSACTION = "no step of a loop: one transaction of the person's request"
OTHER_END = "the step of another case, which differs in nothing but how the user's process ended"
NOT_HERE = {
    run_move(R.SUBMITTED, R.STOPPED): ONE_TRANSACTION,
    run_move(R.WAITING, R.STOPPED): ONE_TRANSACTION,
    run_move(R.STARTING, R.STOPPING): ONE_TRANSACTION,
    run_move(R.RUNNING, R.STOPPING): ONE_TRANSACTION,
    run_move(R.STARTING, R.STOPPED): OTHER_END,
    run_move(R.RUNNING, R.STOPPED): OTHER_END,
    run_move(R.RUNNING, R.FAILED): OTHER_END,
    run_move(R.STOPPING, R.FAILED): OTHER_END,
    run_move(R.SUBMITTED, R.FAILED): "the step WAITING->FAILED, taken at the first look",
    run_move(R.SUBMITTED, R.QUEUE_TIMEOUT): "the step WAITING->QUEUE_TIMEOUT, taken at the first look",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(tmp_path_factory.mktemp("crash")) as world:
        yield world


def test_every_move_of_the_tables_has_its_case() -> None:
    met = {case.move for case in CASES} | {case.carries for case in CASES if case.carries}
    met |= {point.move for point in OWN_CLUSTER} - {DELETION_ORDERED}
    assert not met & NOT_HERE.keys()
    assert met | NOT_HERE.keys() == all_moves()


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_killed_at(world: World, case: Case, stage: Stage) -> None:
    job = a_job(world, **_prepared(world, case, stage))
    case.scenario(world, job, Point(case.move, stage, case.carries))
    assert_ended_well(world, job, case.end, executions=case.executions, attempts=case.attempts)


def test_a_run_on_its_own_cluster_is_killed_at_each_boundary_in_turn(world: World) -> None:
    job = a_job(world, **ON_DEMAND)
    world.serve(OWN_CLUSTER[0])
    job.submit()
    job.open_gate()
    world.wait_died()
    for point in OWN_CLUSTER[1:]:
        world.serve(point)
        world.wait_died()
    assert_ended_well(world, job, R.SUCCEEDED, executions=1)


def test_nothing_of_all_these_runs_is_left_on_ray(world: World) -> None:
    """No record that came back, and no cluster that was made for one of them."""
    world.serve_on()
    wait_until(lambda: not world.unsettled(), END_TIMEOUT_S, world.unsettled)
    assert not world.on_ray()


def assert_ended_well(world: World, job: Job, end: RunState, *, executions: int, attempts: int = 1) -> None:
    world.serve()
    world.post(f"/clusters/{CLUSTER}/uncordon")
    if end is R.SUCCEEDED:
        job.open_gate()
    wait_until(job.is_over, END_TIMEOUT_S, world.last_words)
    run = world.get(f"/runs/{job.run_id}")
    assert run["state"] == end
    assert len(run["attempts"]) <= attempts
    assert world.on_ray().keys() <= world.submissions, "something else was sent as well"
    assert len(job.executions) == executions
    if executions:
        assert job.read_log() == job.log(to_the_end=end is R.SUCCEEDED)
    events = [_told(event) for event in world.get(f"/runs/{job.run_id}/events")["items"]]
    assert len(events) == len(set(events)), "a step was told twice"
    open_usages = world.stored("SELECT attempt_id FROM usage WHERE run_id = ? AND ended_at IS NULL", job.run_id)
    assert not open_usages or run["run_mode"] == "on_demand", "its own cluster may still be going"
    world.settled |= world.submissions


def _told(event: dict[str, Any]) -> tuple[Any, ...]:
    """What tells it from another: each attempt has its own, and a run may wait for several things."""
    return event["type"], event["params"].get("attempt"), event["params"].get("code")


def _prepared(world: World, case: Case, stage: Stage) -> dict[str, Any]:
    """The fields of the case's job, once what they name is there."""
    fields = dict(case.job)
    world.serve_on()
    if "package" in fields:
        fields["package"] = world.upload(fields["package"] + stage)
    if "cluster" in fields:
        world.create_cluster(fields["cluster"])
    return fields
