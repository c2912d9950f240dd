"""How a run comes to a point at which its server dies. Each leaves the world without a server.

The run's command tells what it does in a way that shows a second time: lines in its log, then one line in a file; then
it waits for a gate.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel.loop import Stage
from rayjobs.model.run import AttemptState, RunState
from tests.builders.waiting import wait_until
from tests.crash.points import Point, attempt_move, run_move
from tests.crash.world import CLUSTER, END_TIMEOUT_S, World

LINES = 300
PLACED = Point(run_move(RunState.SUBMITTED, RunState.STARTING), Stage.APPLIED)
SENT = Point(attempt_move(AttemptState.POSTING, AttemptState.PENDING), Stage.ACTED)
ACCEPTED = Point(attempt_move(AttemptState.POSTING, AttemptState.PENDING), Stage.APPLIED)
SEEN_PLACING = Point(attempt_move(AttemptState.PENDING, AttemptState.PLACING), Stage.APPLIED)
SEEN_RUNNING = Point(attempt_move(AttemptState.PENDING, AttemptState.RUNNING), Stage.APPLIED)

ON_SHARED = {"run_mode": "cluster", "cluster": CLUSTER}
ON_DEMAND = {
    "run_mode": "on_demand",
    "resource_package": "default",
    "resource_group": "default",
    "head": {"cpu": 1, "memory_gib": 2},
    "worker_groups": [{"name": "w", "cpu": 1, "memory_gib": 2}],
}
GANG = {"task_groups": [{"name": "tasks", "count": 1, "cpu": 1, "memory_gib": 0.5}]}
SECOND_TRY = {"retry": {"max_attempts": 2, "on": ["user"]}}
"""Of a job whose command fails at the first."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Job:
    """One of its own for each case, so that its only run is found by it."""

    world: World
    name: str
    is_gang: bool = False
    fails_first: bool = False

    @property
    def run_id(self) -> str:
        return self.world.run_of(self.name)

    @property
    def executions(self) -> list[str]:
        file = self._path("executions")
        return file.read_text().splitlines() if file.exists() else []

    @property
    def command(self) -> str:
        said = f"for i in $(seq {LINES}); do echo line $i; done; echo $$ >> {self._path('executions')}"
        waits = f"until [ -e {self._path('gate')} ]; do sleep 0.02; done; echo done"
        return f"{said}; {waits}" + ("; [ $MUSTER_ATTEMPT != 1 ]" if self.fails_first else "")

    def log(self, *, to_the_end: bool) -> str:
        lines = [*(f"line {number}" for number in range(1, LINES + 1)), *(["done"] if to_the_end else [])]
        return "".join(f"{line}\n" for line in lines)

    def read_log(self) -> str:
        return str(self._log()["data"])

    def is_over(self) -> bool:
        """The run, and its log."""
        run = self.world.get(f"/runs/{self.run_id}")
        return bool(run["ended_at"] and (not run["attempts"] or self._log()["complete"]))

    def submit(self) -> None:
        self.world.send("POST", f"/jobs/{self.name}/runs")

    def wait_for(self, state: RunState) -> None:
        """Or for the death of the server, whichever is first."""
        wait_until(lambda: self.world.is_dead or self._state() == state, END_TIMEOUT_S, self.world.last_words)

    def wait_executing(self) -> None:
        wait_until(lambda: bool(self.executions), END_TIMEOUT_S, self.world.last_words)

    def wait_ended_on_ray(self) -> None:
        self.open_gate()
        submission, status = f"{self.run_id}-a1", "FAILED" if self.fails_first else "SUCCEEDED"
        wait_until(lambda: self.world.on_ray()[submission] == status, END_TIMEOUT_S, self.world.on_ray)

    def open_gate(self) -> None:
        self._path("gate").touch()

    def _state(self) -> str | None:
        items = self.world.peek("/runs", job=self.name).get("items")
        return str(items[0]["state"]) if items else None

    def _log(self) -> dict[str, Any]:
        which = {"task_group": "tasks", "task": 0} if self.is_gang else {}
        return self.world.get(f"/runs/{self.run_id}/logs", **which)

    def _path(self, name: str) -> Path:
        return self.world.folder / f"{self.name}-{name}"


Scenario = Callable[[World, Job, Point], None]


def a_job(world: World, **fields: Any) -> Job:
    """`fields` beside or instead of those of a plain job on the shared cluster."""
    is_gang = "task_groups" in fields
    job = Job(world, f"job-{next(_numbers)}", is_gang=is_gang, fails_first="retry" in fields)
    world.serve_on()
    where = {} if "run_mode" in fields else ON_SHARED
    fields = {"package": world.package, **where, **fields}
    if is_gang:
        fields["task_groups"] = [{**group, "entrypoint": job.command} for group in fields["task_groups"]]
    else:
        fields["entrypoint"] = job.command
    world.post("/jobs", name=job.name, **fields)
    return job


def straight(world: World, job: Job, point: Point) -> None:
    world.serve(point)
    job.submit()
    job.wait_for(RunState.RUNNING)
    job.open_gate()
    world.wait_died()


def held_back(world: World, job: Job, point: Point) -> None:
    """It waits for its cluster, then goes on by itself."""
    world.serve(point)
    world.send("POST", f"/clusters/{CLUSTER}/cordon")
    job.submit()
    job.wait_for(RunState.WAITING)
    world.send("POST", f"/clusters/{CLUSTER}/uncordon")
    world.wait_died()


def out_of_patience(world: World, job: Job, point: Point) -> None:
    world.serve(point)
    world.send("POST", f"/clusters/{CLUSTER}/cordon")
    job.submit()
    world.wait_died()


def without_target(world: World, job: Job, point: Point) -> None:
    """The cluster it waits for is deleted."""
    world.serve(point)
    job.submit()
    job.wait_for(RunState.WAITING)
    world.send("DELETE", f"/clusters/{world.get(f'/jobs/{job.name}')['cluster']}")
    world.wait_died()


def without_package(world: World, job: Job, point: Point) -> None:
    """The store lost its package before it was sent."""
    _die_at(world, job, PLACED)
    world.lose_newest_package()
    _live_to(world, point)


def stopped(world: World, job: Job, point: Point) -> None:
    _stop_after(SEEN_RUNNING, world, job, point)


def stopped_unseen(world: World, job: Job, point: Point) -> None:
    """It runs on the cluster, and no server knows yet."""
    _stop_after(ACCEPTED, world, job, point)


def stopped_placing(world: World, job: Job, point: Point) -> None:
    """Its tasks have their places by then, but no server has heard of it."""
    _stop_after(SEEN_PLACING, world, job, point)


def ended_placing(world: World, job: Job, point: Point) -> None:
    _end_after(SEEN_PLACING, world, job, point)


def ended_unseen(world: World, job: Job, point: Point) -> None:
    _end_after(ACCEPTED, world, job, point)


def stopped_too_late(world: World, job: Job, point: Point) -> None:
    """Whether it was sent at all is not known to the server that finds the stop; it has ended meanwhile."""
    _die_at(world, job, SENT)
    job.wait_ended_on_ray()
    world.stop_without_server(job.run_id)
    _live_to(world, point)


def stopped_before_cluster(world: World, job: Job, point: Point) -> None:
    """On demand: while its own cluster is on its way."""
    _die_at(world, job, PLACED)
    world.stop_without_server(job.run_id)
    _live_to(world, point)


def _stop_after(seen: Point, world: World, job: Job, point: Point) -> None:
    """While nobody serves it executes and is told to stop."""
    _die_at(world, job, seen)
    job.wait_executing()
    world.stop_without_server(job.run_id)
    _live_to(world, point)


def _end_after(seen: Point, world: World, job: Job, point: Point) -> None:
    """While nobody serves it ends."""
    _die_at(world, job, seen)
    job.wait_ended_on_ray()
    _live_to(world, point)


def _die_at(world: World, job: Job, point: Point) -> None:
    world.serve(point)
    job.submit()
    world.wait_died()


def _live_to(world: World, point: Point) -> None:
    world.serve(point)
    world.wait_died()
