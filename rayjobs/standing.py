"""Where waiting runs stand in their queues: the order of `decide.order`, in the words of the database.

Counted there, since a queue may be long and many people look. A test holds the two against each other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.quota import QueueSettings
from cluster_groups.store import clusters, groups, resources
from rayjobs.decide.order import HIGHEST, effective_priority, settings_of_groups
from rayjobs.model.job import DEFAULT_PRIORITY
from rayjobs.model.run import WAITING_STATES
from rayjobs.snapshot import HELD_ON
from rayjobs.tables import RunRow

NEAREST = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Place in the queue from 1, and the nearest runs ahead, the nearest first."""

    position: int
    ahead: list[str]


async def standing_of(session: AsyncSession, run: RunRow, now: datetime) -> Standing:
    order = _Order(await settings_of(session, run.queue), now)
    mine = (await session.execute(select(*order.columns).where(RunRow.id == run.id))).one()
    ahead = select(RunRow.id).where(_waits_in(run.queue), order.before(mine))
    count = await session.scalar(select(func.count()).select_from(ahead.subquery()))
    nearest = await session.scalars(ahead.order_by(*order.last_first).limit(NEAREST))
    return Standing(position=(count or 0) + 1, ahead=list(nearest))


async def queue_in_order(session: AsyncSession, queue: str, now: datetime) -> list[tuple[RunRow, int]]:
    """The runs that wait in it, with their effective priorities."""
    order = _Order(await settings_of(session, queue), now)
    rows = await session.execute(select(RunRow, order.priority).where(_waits_in(queue)).order_by(*order.first_first))
    return [(row, priority) for row, priority in rows]


async def count_waiting(session: AsyncSession, queue: str) -> int:
    return await session.scalar(select(func.count()).where(_waits_in(queue))) or 0


async def effective_priorities(session: AsyncSession, runs: Sequence[RunRow], now: datetime) -> dict[str, int | None]:
    """By run id; of one that does not wait (any more) what was asked for."""
    queues = {run.queue for run in runs if run.state in WAITING_STATES}
    settings = await _settings_by_queue(session, queues) if queues else {}
    return {
        run.id: effective_priority(run.priority, run.enqueued_at, settings[run.queue], now)
        if run.state in WAITING_STATES
        else run.priority
        for run in runs
    }


async def settings_of(session: AsyncSession, queue: str) -> QueueSettings:
    return (await _settings_by_queue(session, [queue]))[queue]


async def _settings_by_queue(session: AsyncSession, queues: Collection[str]) -> dict[str, QueueSettings]:
    by_name = {group.name: group for group in await resources.groups(session)}
    return {queue: settings_of_groups(await _resource_groups(session, queue), by_name) for queue in queues}


async def _resource_groups(session: AsyncSession, queue: str) -> set[str | None]:
    """That of the cluster, those of the members of a cluster group: a queue says in its name whose it is."""
    kind, _, name = queue.partition("/")
    if kind == "resource_group":
        return {name}
    names = [name]
    if kind == "cluster_group":
        group = await groups.named(session, name)
        names = [member.cluster for member in group.members] if group else []
    return await clusters.resource_groups_of(session, names)


class _Order:
    """`order_key` as columns: held for, effective priority, age, id."""

    def __init__(self, queue: QueueSettings, now: datetime) -> None:
        is_held_for = RunRow.condition["params"][HELD_ON].as_string().is_not(None)
        self.held: ColumnElement[int] = case((is_held_for, 1), else_=0)
        if queue.reserve_after_s is None:
            self.held = literal(0)
        aged = [
            (RunRow.enqueued_at <= now - timedelta(seconds=queue.aging_s * steps), steps)
            for steps in range(HIGHEST - 1, 0, -1)
        ]
        sum_of = func.coalesce(RunRow.priority, DEFAULT_PRIORITY) + case(*aged, else_=0)
        self.priority: ColumnElement[int] = case((sum_of > HIGHEST, HIGHEST), else_=sum_of)
        self.columns = (self.held, self.priority, RunRow.enqueued_at, RunRow.id)
        self.first_first = (self.held.desc(), self.priority.desc(), RunRow.enqueued_at, RunRow.id)
        self.last_first = (self.held, self.priority, RunRow.enqueued_at.desc(), RunRow.id.desc())

    def before(self, mine: Sequence[object]) -> ColumnElement[bool]:
        held, priority, enqueued_at, run_id = mine
        return case(
            (self.held != held, self.held > held),
            (self.priority != priority, self.priority > priority),
            (RunRow.enqueued_at != enqueued_at, RunRow.enqueued_at < enqueued_at),
            else_=RunRow.id < run_id,
        )


def _waits_in(queue: str) -> ColumnElement[bool]:
    return and_(RunRow.queue == queue, RunRow.state.in_(WAITING_STATES))
