"""Which waiting runs start now and where, and what each of the others waits for.

Runs are taken in order. One that finds no room lets later ones pass where they fit, until it has waited
`reserve_after_s`: from then on capacity is held for it (`hold`), one run of each queue at a time. Queues that share no
cluster and no resource group do not touch each other: a snapshot of one of them alone gives the same answers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any

from cluster_groups.model.group import Policy
from kernel.clock import instant
from kernel.reasons import Reason
from kernel.resources import Resources
from rayjobs.decide.hold import hold_for
from rayjobs.decide.lines import Line, lines_of
from rayjobs.decide.order import OrderKey
from rayjobs.decide.retry import backing_off
from rayjobs.decide.room import Hold, Room
from rayjobs.decide.world import Placed, Record, Stuck, Target, World, record
from rayjobs.model.run import Condition, End, EndClass, EndCode
from rayjobs.snapshot import HELD_ON, NO_ROOM_SINCE, AdmissionSnapshot, WaitingRun

LOST_TIMEOUT_S = 900
"""How long a placed run waits for a vanished cluster, where no policy says otherwise (policy.md §1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """`cluster_id` is None when the run's own cluster has to be made first.

    `policy` is that of the group that chose the cluster, and holds for this attempt whatever becomes of it later.
    """

    run: WaitingRun
    cluster_id: str | None
    cluster: str | None
    record: Record = field(compare=False)
    policy: Policy | None = None
    can_call_back: bool = False
    """Of its cluster."""
    window_ends_at: datetime | None = None
    """When Muster is to stop it, because the window of its member closes."""
    amount: Resources = field(default_factory=Resources)
    """What the ledger counts for it: its accelerators are of the type it gets, whatever types it takes."""
    placement: Mapping[str, Resources] = field(default_factory=dict)
    """Of a gang: by node id, as Ray is expected to place it."""

    @property
    def lost_timeout_s(self) -> int:
        return LOST_TIMEOUT_S if self.policy is None else self.policy.lost_timeout_s

    @property
    def decision(self) -> dict[str, Any]:
        return {"run": self.run.id, **self.record()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """What one run waits for."""

    run: WaitingRun
    stuck: Stuck
    predicted_start: datetime | None = None

    @property
    def reason(self) -> Reason:
        return self.stuck.reason

    @property
    def decision(self) -> dict[str, Any]:
        """With what is its own: since when it waits for room, and when that opens more members to it."""
        told = {"run": self.run.id, **self.stuck.record()}
        since, opens_at = _no_room_since(self.run, self.stuck), _opens_at(self.run, self.stuck)
        if since is not None:
            told[NO_ROOM_SINCE] = instant(since)
        if opens_at is not None and datetime.fromisoformat(told["next_evaluation_at"]) > opens_at:
            told["next_evaluation_at"] = instant(opens_at)
        return told

    def condition(self, now: datetime) -> Condition:
        """It waits since it began to wait for this."""
        known, reason = self.run.condition, self.reason
        no_room_since = _no_room_since(self.run, self.stuck)
        return Condition(
            code=reason.code,
            owner=reason.owner,
            params=reason.params if no_room_since is None else {**reason.params, NO_ROOM_SINCE: instant(no_room_since)},
            since=known.since if known is not None and known.code == reason.code else now,
            predicted_start=self.predicted_start,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Runs that wait for the same, in order."""

    runs: tuple[WaitingRun, ...]
    stuck: Stuck
    predicted_start: datetime | None = None
    """Only of a run that capacity is held for, when all it depends on have declared their limits."""

    @property
    def reason(self) -> Reason:
        return self.stuck.reason

    @property
    def one_by_one(self) -> Iterator[Wait]:
        return (Wait(run=run, stuck=self.stuck, predicted_start=self.predicted_start) for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    run: WaitingRun
    end: End


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionPlan:
    """`starts` are in the order of admission."""

    starts: tuple[Start, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    give_ups: tuple[GiveUp, ...] = ()
    next_look_s: float = math.inf
    """How soon time alone changes something: the end of a run's longest wait or of its back-off, a hold that begins,
    a window of a member, a tier that opens.

    That runs grow older changes their order, but not who finds room.
    """

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The same one by one."""
        return tuple(wait for one in self.waiting for wait in one.one_by_one)


def plan_admission(snapshot: AdmissionSnapshot, now: datetime) -> AdmissionPlan:
    return _Round(snapshot, now).plan()


class _Round:
    def __init__(self, snapshot: AdmissionSnapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._world = World(snapshot, now)
        self._kept: dict[str, Room] = {}
        """By queue: what is kept for its one run that capacity is held for."""
        self._starts: list[Start] = []
        self._waiting: list[Waiting] = []
        self._give_ups: list[GiveUp] = []
        self._next_look_s = math.inf

    def plan(self) -> AdmissionPlan:
        lines = lines_of(self._able(), self._world)
        self._admit(lines)
        for line in lines:
            self._tell(line)
        return AdmissionPlan(
            starts=tuple(self._starts),
            waiting=tuple(sorted(self._waiting, key=lambda one: (one.runs[0].enqueued_at, one.runs[0].id))),
            give_ups=tuple(sorted(self._give_ups, key=lambda one: (one.run.enqueued_at, one.run.id))),
            next_look_s=self._next_look_s,
        )

    def _able(self) -> Iterator[WaitingRun]:
        """All but those who give up or stay back: these keep their place and neither block others nor are held for."""
        for run in self._snapshot.runs:
            if self._is_too_old(run):
                continue
            free_from = run.free_from if run.is_releasing else None
            is_bound = run.is_releasing and (free_from is None or free_from > self._now)
            if is_bound or (run.not_before is not None and run.not_before > self._now):
                # That it is over will be told.
                self._look_at(free_from if is_bound else run.not_before)
                reason = backing_off(run)
                self._wait((run,), Stuck(reason=reason, record=record(self._now, reason=reason)))
            else:
                yield run

    def _is_too_old(self, run: WaitingRun) -> bool:
        max_wait_s = run.max_wait_s
        if max_wait_s is None and run.cluster_group is not None:  # its own (or its job's), else its group's (A36)
            group = self._snapshot.groups.get(run.cluster_group)
            max_wait_s = group.policy.max_wait_s if group else None
        if max_wait_s is None:
            return False
        deadline = (run.waiting_since or run.enqueued_at) + timedelta(seconds=max_wait_s)
        if deadline > self._now:
            self._look_at(deadline)
            return False
        params = {"max_wait_s": max_wait_s, "waited_for": run.condition.code if run.condition else None}
        end = End(end_class=EndClass.TIMEOUT, code=EndCode.MAX_WAIT, params=params)
        self._give_ups.append(GiveUp(run=run, end=end))
        return True

    def _admit(self, lines: Iterable[Line]) -> None:
        """Whoever is first of all lines is next."""
        heap: list[tuple[OrderKey, Line, Target]] = []
        for line in lines:
            if isinstance(line.target, End):
                self._give_ups += [GiveUp(run=run, end=line.target) for run in line.runs]
            else:
                heap.append((line.key(self._now), line, line.target))
        heap.sort()
        for _, line, target in heap:
            self._keep_holding(line, target)
        while heap:
            _, line, target = heappop(heap)
            if self._admit_first(line, target):
                heappush(heap, (line.key(self._now), line, target))

    def _admit_first(self, line: Line, target: Target) -> bool:
        """Start the first run of the line if it can; whether another of the line may start after that."""
        run = line.first
        found = target.place(run)
        if isinstance(found, Placed):
            self._start(run, found)
            line.at += 1
            return not line.is_over
        line.stuck = found
        self._hold(line, run, found)
        return found.fits and line.pass_over()

    def _start(self, run: WaitingRun, placed: Placed) -> None:
        placed.room.take(placed.grant, run, self._now)
        if run.is_evicted:
            self._world.moves.append(self._now)
        if self._is_held_for(run):
            self._kept.pop(run.queue).hold = None
        placement = placed.grant.placement
        start = Start(
            run=run,
            cluster_id=placed.view.id if placed.view else None,
            cluster=placed.view.name if placed.view else None,
            record=placed.record,
            policy=placed.policy,
            can_call_back=placed.view is not None and placed.view.can_call_back,
            window_ends_at=placed.window_ends_at,
            amount=placed.grant.amount,
            placement=placement.nodes if placement else {},
        )
        self._starts.append(start)

    def _keep_holding(self, line: Line, target: Target) -> None:
        """What was held for a run when it was last looked at is so before anybody starts: until it does itself."""
        run, entitled_from = line.first, line.entitled_from()
        if run.held_on is None or entitled_from is None or run.queue in self._kept:
            return
        found = target.kept(run.held_on)
        if found is not None and found[0].hold is None:
            self._keep(found[0], hold_for(run.id, *found, self._now), run)

    def _hold(self, line: Line, run: WaitingRun, stuck: Stuck) -> None:
        """On the target where it is projected to start first; where nobody can tell, on the first that it could get."""
        if run.queue in self._kept and not self._is_held_for(run):
            return
        entitled_from = line.entitled_from() if stuck.rooms else None
        if entitled_from is None or entitled_from > self._now:
            self._look_at(entitled_from)
            return
        able = [one for one in stuck.rooms if one[0].hold is None or one[0].hold.run == run.id]
        holds = [(room.hold or hold_for(run.id, room, ask, self._now), room, name) for room, ask, name in able]
        if not holds:
            return
        hold, room, name = min(holds, key=lambda one: (one[0].start is None, one[0].start or self._now))
        self._keep(room, hold, run)
        line.held_for = run
        self._wait((run,), _held_on(stuck, name), predicted_start=hold.start)

    def _keep(self, room: Room, hold: Hold, run: WaitingRun) -> None:
        before = self._kept.get(run.queue)
        if before is not None:
            before.hold = None
        room.hold = hold
        self._kept[run.queue] = room

    def _is_held_for(self, run: WaitingRun) -> bool:
        room = self._kept.get(run.queue)
        return room is not None and room.hold is not None and room.hold.run == run.id

    def _tell(self, line: Line) -> None:
        left = line.left
        if line.held_for is not None:
            left.remove(line.held_for)
        if line.stuck is not None and left:
            self._wait(tuple(left), line.stuck)

    def _wait(self, runs: tuple[WaitingRun, ...], stuck: Stuck, *, predicted_start: datetime | None = None) -> None:
        self._waiting.append(Waiting(runs=runs, stuck=stuck, predicted_start=predicted_start))
        self._look_at(stuck.next_change_at)
        if stuck.opens_after_s is not None:
            self._look_at(min(at for run in runs if (at := _opens_at(run, stuck))))

    def _look_at(self, instant: datetime | None) -> None:
        if instant is not None:
            self._next_look_s = min(self._next_look_s, max(0.0, (instant - self._now).total_seconds()))


def _held_on(stuck: Stuck, name: str) -> Stuck:
    reason = replace(stuck.reason, params={**stuck.reason.params, HELD_ON: name})
    return replace(stuck, reason=reason, record=lambda: {**stuck.record(), "reason": reason.told})


def _no_room_since(run: WaitingRun, stuck: Stuck) -> datetime | None:
    return None if stuck.no_room_at is None else run.no_room_since or stuck.no_room_at


def _opens_at(run: WaitingRun, stuck: Stuck) -> datetime | None:
    since = _no_room_since(run, stuck)
    return None if since is None or stuck.opens_after_s is None else since + timedelta(seconds=stuck.opens_after_s)
