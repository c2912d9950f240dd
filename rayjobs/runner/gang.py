"""The driver of a job of tasks: takes all places at once, starts the tasks, ends them by the completion policy.

What it learns goes to events.jsonl as it happens. The last line is the verdict, written when nobody is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import remove_placement_group

from .clock import now_s
from .completion import Completion, TaskEnd
from .environment import actors_job_config, ray_variables, set_up_bound_s
from .events import EventLog
from .guard import Ended
from .lease import PASS_ON_S, Lease
from .placement import Gang, NotAllocated, Seat, allocate
from .spec import EXIT_GUARD_LOST, RunnerSpec
from .task_actor import Order
from .verdict import Verdict, lease_lost, max_runtime, runner_failed, stopped

_ASK_AGAIN_S = 1
_LOSS_NOTICED_S = 60
"""Ray finds a node dead after 15 s by default; nobody waits much longer for word of a task that was told to stop."""
_RAY_WAITS_S = 8
"""Beyond the grace; a little later Ray kills the runner that it told to stop (rayjobs/dispatch.py)."""


def run_gang(spec: RunnerSpec, home: str, folder: str, lease: Lease | None) -> int:
    """The runner's exit code."""
    log = EventLog(os.path.join(folder, "events.jsonl"))
    inherited = dict(os.environ)
    if lease is not None:
        lease.keep()
    try:
        os.environ.update(actors_job_config(inherited))
        ray.init(address=inherited["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
        variables, up_within_s = ray_variables(inherited, home), set_up_bound_s(inherited)
        verdict = asyncio.run(_drive(spec, log, lease, variables, up_within_s))
    except Exception as error:  # noqa: BLE001 - whatever it is, Muster is told
        verdict = runner_failed(f"{type(error).__name__}: {error}")
    log.write("verdict", **verdict._asdict())
    _say(_in_words(spec, verdict))
    ray.shutdown()
    return verdict.exit_code


class _Outcome(NamedTuple):
    """`how`: exited, stopped or lost. `trouble` is set when it was no fault of the task's."""

    seat: Seat
    how: str
    ended: Ended | None = None
    trouble: Verdict | None = None

    @property
    def end(self) -> TaskEnd:
        code, killer = (self.ended.task_code, self.ended.signal) if self.ended else (None, None)
        return TaskEnd(self.seat.group, self.seat.task, code, killer)


async def _drive(
    spec: RunnerSpec, log: EventLog, lease: Lease | None, variables: dict[str, str], up_within_s: float
) -> Verdict:
    stop = asyncio.ensure_future(_told_to_stop(lease))
    log.write("gang_waiting", wanted=sum(group.tasks for group in spec.groups))
    allocating = asyncio.ensure_future(allocate(spec, up_within_s))
    await asyncio.wait({allocating, stop}, return_when=asyncio.FIRST_COMPLETED)
    if stop.done():
        allocating.cancel()
        await asyncio.wait({allocating})
        return stop.result()
    try:
        gang = allocating.result()
    except NotAllocated as refused:
        return refused.verdict
    _say(f"all {len(gang.seats)} tasks have their places")
    verdict = await _Tasks(spec, log, lease, stop).run(gang, variables)
    remove_placement_group(gang.placed)
    return verdict


async def _told_to_stop(lease: Lease | None) -> Verdict:
    """Why: somebody asked for it, or the lease is over."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    look_s = None if lease is None else _ASK_AGAIN_S
    while not asked.is_set():
        if lease is not None and lease.is_over:
            return lease_lost()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asked.wait(), look_s)
    return stopped()


class _Tasks:
    """From allocation until no task has a process left."""

    def __init__(self, spec: RunnerSpec, log: EventLog, lease: Lease | None, stop: asyncio.Future[Verdict]) -> None:
        self._spec = spec
        self._log = log
        self._lease = lease
        self._stop = stop
        self._completion = Completion(spec.groups)
        self._running: dict[asyncio.Future[_Outcome], Seat] = {}
        self._is_ending = False
        self._time_is_up_at = float("inf")

    async def run(self, gang: Gang, variables: dict[str, str]) -> Verdict:
        self._note_places(gang)
        if self._spec.max_runtime_s is not None:
            self._time_is_up_at = now_s() + self._spec.max_runtime_s
        for seat, order in zip(gang.seats, self._orders(gang, variables)):  # noqa: B905 - `strict` is 3.10's
            self._running[asyncio.ensure_future(self._run_task(seat, order))] = seat
        verdict = None
        while verdict is None:
            outcomes = await self._next_outcomes(None)
            verdict = self._stop.result() if self._stop.done() else self._judge(outcomes)
        return await self._end_rest(verdict)

    def _note_places(self, gang: Gang) -> None:
        for seat, place in zip(gang.seats, gang.places):  # noqa: B905
            self._log.write("task_placed", group=seat.group, task=seat.task, **place._asdict())
        self._log.write("gang_allocated")

    def _orders(self, gang: Gang, variables: dict[str, str]) -> list[Order]:
        addresses: list[list[str]] = [[] for _ in self._spec.groups]
        for seat, place in zip(gang.seats, gang.places):  # noqa: B905
            addresses[seat.group].append(place.ip)
        return [
            Order(self._spec, seat.group, seat.task, addresses, place.host_ip, variables)
            for seat, place in zip(gang.seats, gang.places)  # noqa: B905
        ]

    async def _run_task(self, seat: Seat, order: Order) -> _Outcome:
        holding = asyncio.ensure_future(self._pass_on_lease(seat))
        try:
            outcome = await self._outcome(seat, order)
        finally:
            holding.cancel()
        self._note_end(outcome)
        return outcome

    async def _pass_on_lease(self, seat: Seat) -> None:
        """To the task's guard, by the clock of its own node: so words that come late promise no more than was true."""
        if self._lease is None:
            return
        with suppress(RayError):  # then the task is lost, and its own coroutine says so
            ahead_s = await _answer(seat.actor.hold, None) - now_s()
            while True:
                ahead_s = await _answer(seat.actor.hold, self._lease.until + ahead_s) - now_s()
                await asyncio.sleep(PASS_ON_S)

    async def _outcome(self, seat: Seat, order: Order) -> _Outcome:
        try:
            if not await _answer(seat.actor.start, order):
                return _Outcome(seat, "stopped")
            self._log.write("task_started", group=seat.group, task=seat.task)
            ended: Ended | None = await _answer(seat.actor.wait)
        except RayActorError:
            return _Outcome(seat, "lost")
        except RayError as error:
            return _Outcome(seat, "lost", trouble=runner_failed(str(error)))
        if ended is None:
            name = f"{self._spec.groups[seat.group].name}-{seat.task}"
            trouble = runner_failed(f"the guard of task {name} was killed", EXIT_GUARD_LOST)
            return _Outcome(seat, "lost", trouble=trouble)
        if ended.reason == "NODE_ENDED" and not self._is_ending:
            return _Outcome(seat, "lost")
        is_late = ended.reason in {"MAX_RUNTIME", "LEASE_EXPIRED"}
        was_stopped = is_late or (self._is_ending and ended.reason != "EXITED")
        return _Outcome(seat, "stopped" if was_stopped else "exited", ended)

    async def _next_outcomes(self, timeout_s: float | None) -> list[_Outcome]:
        """Of the tasks that have ended meanwhile; none when the timeout or a stop came first."""
        awaited = {*self._running, *(() if self._is_ending and self._stop.done() else (self._stop,))}
        done, _ = await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        ended = [one for one in self._running if one in done]
        for one in ended:
            del self._running[one]
        return [one.result() for one in ended]

    def _judge(self, outcomes: list[_Outcome]) -> Verdict | None:
        reasons = {one.ended.reason for one in outcomes if one.ended}
        if "LEASE_EXPIRED" in reasons:
            return lease_lost()
        if "MAX_RUNTIME" in reasons:
            return max_runtime()
        trouble = next((one.trouble for one in outcomes if one.trouble), None)
        verdict = trouble or self._completion.take([one.end for one in outcomes])
        # The first guard whose time is up may take down a task whose own guard has a moment to go.
        is_late = verdict is not None and verdict.end_class == "user" and now_s() >= self._time_is_up_at
        return max_runtime() if is_late else verdict

    async def _end_rest(self, verdict: Verdict) -> Verdict:
        """Stop whoever still runs and wait until all are gone; a loss that comes to light may change the verdict."""
        self._is_ending = True
        stops = [asyncio.ensure_future(_ask_to_stop(seat)) for seat in self._running.values()]
        give_up_at = self._give_up_at()
        while self._running and now_s() < give_up_at:
            was_told = self._stop.done()
            for outcome in await self._next_outcomes(give_up_at - now_s()):
                if outcome.how == "lost" and not outcome.trouble and verdict is self._completion.verdict:
                    verdict = self._completion.take_loss(outcome.end) or verdict
            if self._stop.done() and not was_told:
                give_up_at = min(give_up_at, self._give_up_at())
        for task in self._running:
            task.cancel()
        for stop in stops:
            stop.cancel()
        for seat in self._running.values():
            self._note_end(_Outcome(seat, "lost"))
        return verdict

    def _give_up_at(self) -> float:
        slack_s = _RAY_WAITS_S if self._stop.done() else _LOSS_NOTICED_S
        return now_s() + self._spec.stop_grace_s + slack_s

    def _note_end(self, outcome: _Outcome) -> None:
        group, task, code, killer = outcome.end
        self._log.write("task_ended", group=group, task=task, exit_code=code, signal=killer, how=outcome.how)


async def _answer(method: Any, *arguments: object) -> Any:
    """Ray says "unavailable" while it does not know whether the actor is dead: then ask again."""
    while True:
        try:
            return await method.remote(*arguments)
        except ActorUnavailableError:
            await asyncio.sleep(_ASK_AGAIN_S)


async def _ask_to_stop(seat: Seat) -> None:
    try:
        await _answer(seat.actor.stop)
    except RayError:  # then the task is lost, and its own coroutine says so
        return


def _in_words(spec: RunnerSpec, verdict: Verdict) -> str:
    words = [f"the job ended: {verdict.end_class}", verdict.code or ""]
    if verdict.group is not None:
        words.append(f"by task {spec.groups[verdict.group].name}-{verdict.task}")
    words += [f"{name}={value}" for name, value in verdict.params.items()]
    return " ".join(filter(None, words))


def _say(words: str) -> None:
    print(f"muster: {words}", flush=True)
