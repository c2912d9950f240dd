"""All tasks of all groups get their places at once, or none does: one placement group, an actor in each bundle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray
from ray._private import state
from ray.exceptions import ActorUnavailableError, RayActorError, RuntimeEnvSetupError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .bundles import ACCELERATOR, Bundle, bundle, bundles, missing
from .spec import GroupSpec, RunnerSpec
from .task_actor import Place, TaskActor
from .verdict import Verdict, gang_timeout, runner_failed, runtime_env_failed

_TRIES = 5
_LOOK_AGAIN_S = 1


class Seat(NamedTuple):
    """A task and the actor in its bundle."""

    group: int
    task: int
    actor: Any


class Gang(NamedTuple):
    """What was allocated: the seats as the groups and their tasks follow each other, and where each is."""

    placed: PlacementGroup
    seats: list[Seat]
    places: list[Place]


class NotAllocated(Exception):
    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.code)
        self.verdict = verdict


class _Lost(Exception):
    """A place was lost before all were taken."""


async def allocate(spec: RunnerSpec, up_within_s: float) -> Gang:
    """Raises NotAllocated. Whatever is lost before all tasks are up: everything is given back and asked for anew."""
    deadline = time.monotonic() + spec.gang_timeout_s
    reason = ""
    for _ in range(_TRIES):
        group = placement_group(bundles(spec.groups), strategy=spec.placement_strategy)
        try:
            await _wait_placed(group, spec, deadline)
            seats = _take_seats(group, spec.groups)
            return Gang(group, seats, await _wait_up(group, seats, up_within_s))
        except _Lost as lost:
            reason = str(lost)
            remove_placement_group(group)
        except BaseException:
            remove_placement_group(group)
            raise
    raise NotAllocated(runner_failed(f"the tasks' actors were lost {_TRIES} times before all were up: {reason}"))


async def _wait_placed(group: PlacementGroup, spec: RunnerSpec, deadline: float) -> None:
    while not await asyncio.to_thread(group.wait, _LOOK_AGAIN_S):
        if time.monotonic() > deadline:
            wanted = bundles(spec.groups)
            lacking = missing(wanted, _free(), spec.placement_strategy)
            raise NotAllocated(gang_timeout(lacking, len(wanted), spec.gang_timeout_s))


def _free() -> list[Bundle]:
    amounts: dict[str, Bundle] = state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return list(amounts.values())


def _take_seats(group: PlacementGroup, groups: Sequence[GroupSpec]) -> list[Seat]:
    tasks = [(at, task) for at, one in enumerate(groups) for task in range(one.tasks)]
    return [Seat(at, task, _actor(group, index, bundle(groups[at]))) for index, (at, task) in enumerate(tasks)]


def _actor(group: PlacementGroup, index: int, size: Bundle) -> Any:
    rest = {name: amount for name, amount in size.items() if name.startswith(ACCELERATOR)}
    options = {
        "num_cpus": size.get("CPU", 0),
        "num_gpus": size.get("GPU", 0),
        "memory": size.get("memory", 0),
        "resources": rest,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        "max_restarts": 0,
    }
    return ray.remote(TaskActor).options(**options).remote()


async def _wait_up(group: PlacementGroup, seats: Sequence[Seat], within_s: float) -> list[Place]:
    """Where the actors are, once all of them live: until then their nodes set up the job's runtime_env."""
    deadline = time.monotonic() + within_s
    asked = [asyncio.ensure_future(_ask(seat)) for seat in seats]
    for one in asked:
        one.add_done_callback(_hear)
    waiting = set(asked)
    while waiting:
        done, waiting = await asyncio.wait(waiting, timeout=_LOOK_AGAIN_S, return_when=asyncio.FIRST_EXCEPTION)
        for one in done:
            one.result()
        if placement_group_table(group).get("state") != "CREATED":
            raise _Lost("a node died")
        if waiting and time.monotonic() > deadline:
            message = f"{len(waiting)} of {len(seats)} tasks' actors did not come up within {within_s:g} s"
            raise NotAllocated(runner_failed(message))
    return [one.result() for one in asked]


def _hear(done: asyncio.Future[Place]) -> None:
    """Of several that fail the first one tells; asyncio shall not complain of the others."""
    if not done.cancelled():
        done.exception()


async def _ask(seat: Seat) -> Place:
    while True:
        try:
            place: Place = await seat.actor.place.remote()
        except RuntimeEnvSetupError as error:
            raise NotAllocated(runtime_env_failed(str(error), seat.group, seat.task)) from error
        except ActorUnavailableError:
            await asyncio.sleep(_LOOK_AGAIN_S)
        except RayActorError as error:
            if error.actor_init_failed:
                raise NotAllocated(runner_failed(str(error))) from error
            raise _Lost(str(error)) from error
        else:
            return place
