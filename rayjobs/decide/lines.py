"""Waiting runs as lines of equals: same target, demand and priority. There are far fewer of them than runs.

Of equals the older one is ahead however long both have waited, so a line is in order by age alone, and what one of it
finds no room for none behind it does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cluster_groups.model.demand import Demand
from cluster_groups.model.quota import QueueSettings
from rayjobs.decide.order import OrderKey, order_key, settings_of_queue
from rayjobs.decide.targets import target_of
from rayjobs.decide.world import Kind, Stuck, Target, World
from rayjobs.model.run import End
from rayjobs.snapshot import WaitingRun


@dataclass(slots=True)
class Line:
    queue: QueueSettings
    target: Target | End
    runs: list[WaitingRun] = field(default_factory=list)
    at: int = 0
    """The first that has neither started nor been passed over."""
    passed: list[WaitingRun] = field(default_factory=list)
    """Those that wait while others behind them may start: these declare shorter limits."""
    stuck: Stuck | None = None
    """What the latest of them waits for, and so all that are left."""
    held_for: WaitingRun | None = None
    """The one that capacity is held for."""

    @property
    def is_over(self) -> bool:
        return self.at == len(self.runs)

    @property
    def first(self) -> WaitingRun:
        return self.runs[self.at]

    @property
    def left(self) -> list[WaitingRun]:
        return [*self.passed, *self.runs[self.at :]]

    def key(self, now: datetime) -> OrderKey:
        """Where its first stands among those of all lines."""
        return order_key(self.first, self.queue, now)

    def entitled_from(self) -> datetime | None:
        """From when on capacity may be held for its first; None: never."""
        after_s, run = self.queue.reserve_after_s, self.first
        return None if after_s is None else run.enqueued_at + timedelta(seconds=after_s if run.held_on is None else 0)

    def pass_over(self) -> bool:
        """Go on to the next run with a shorter limit, for which there may be time; False: there is none."""
        limit = self.first.max_runtime_s
        for at in range(self.at + 1, len(self.runs)):
            other = self.runs[at].max_runtime_s
            if other is not None and (limit is None or other < limit):
                self.passed += self.runs[self.at : at]
                self.at = at
                return True
        return False


def lines_of(runs: Iterable[WaitingRun], world: World) -> list[Line]:
    """Whoever loads many runs had better give equal ones the same `Demand`: then it is compared but once."""
    settings: dict[str, QueueSettings] = {}
    targets: dict[tuple[str, str | None, int, Kind | None], Target | End] = {}
    lines: dict[tuple[object, ...], Line] = {}
    demands = _Demands()
    for run in runs:
        demand = demands.same_as(run.demand)
        kind = None if run.cluster_group is None else world.kind_of(run)
        cluster_id = run.cluster_id if kind is None else None  # of a group the one it was on before
        key = (run.queue, cluster_id, demand, kind, run.priority, run.held_on)
        line = lines.get(key)
        if line is None:
            if run.queue not in settings:
                settings[run.queue] = settings_of_queue(run, world.snapshot)
            asked = (run.queue, cluster_id, demand, kind)
            if asked not in targets:
                targets[asked] = target_of(run, world)
            line = lines[key] = Line(queue=settings[run.queue], target=targets[asked])
        line.runs.append(run)
    for line in lines.values():
        if len(line.runs) > 1:
            line.runs.sort(key=lambda run: (run.enqueued_at, run.id))
    return list(lines.values())


class _Demands:
    """Numbers for demands, the same for equal ones."""

    def __init__(self) -> None:
        self._by_identity: dict[int, int] = {}
        self._by_content: dict[Demand, int] = {}

    def same_as(self, demand: Demand) -> int:
        number = self._by_identity.get(id(demand))
        if number is None:
            number = self._by_content.setdefault(demand, len(self._by_content))
            self._by_identity[id(demand)] = number
        return number
