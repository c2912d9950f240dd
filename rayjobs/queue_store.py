"""What the admission decides on: the waiting runs, and what live attempts hold.

It looks often and at everything, and little has changed since: what stands as it stood is not read again.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import Row, Text, and_, cast, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from cluster_groups.model.demand import Demand
from cluster_groups.model.group import OnClusterLoss
from kernel.db import in_parts
from kernel.remembered import Remembered
from rayjobs.decide.pace import AT_ONCE
from rayjobs.decide.retry import CLUSTER_LOSSES
from rayjobs.decide.successor import Earlier, free_from, latest
from rayjobs.model.job import RunMode
from rayjobs.model.run import WAITING_STATES, AttemptState, EndClass, EndCode, RunState
from rayjobs.run_store import condition_from_json, demand_from_json, resources_from_json
from rayjobs.snapshot import BESIDE_LIMIT_S, Held, Load, WaitingRun
from rayjobs.tables import IS_NOT_ENDED, AttemptRow, RunRow

COUNTED = frozenset(
    {
        AttemptState.CLUSTER,
        AttemptState.POSTING,
        AttemptState.PENDING,
        AttemptState.PLACING,
        AttemptState.RUNNING,
        AttemptState.STOPPING,
    }
)
"""Attempts that hold a driver slot and resources on their cluster."""
ITS_OWN_DOING = frozenset({EndClass.COMPLETED, EndClass.USER, EndClass.STOPPED})
"""Ends that say nothing against the cluster."""

_STARTING = frozenset({AttemptState.POSTING, AttemptState.PENDING})
_WAITS = RunRow.state.in_(WAITING_STATES)
_COUNTED = AttemptRow.state.in_(COUNTED)
_COUNTS = (IS_NOT_ENDED, _COUNTED)
IS_STALE = and_(IS_NOT_ENDED, AttemptRow.state.not_in(COUNTED), AttemptRow.lost_since.is_not(None))
"""Over as far as its run goes, and not confirmed over: its cluster had not answered."""
_REMEMBERED = 1000


class QueueStore:
    """One for each who asks again and again; who asks once makes one for that."""

    def __init__(self) -> None:
        self._runs: Remembered[str, WaitingRun] = Remembered(_REMEMBERED)
        self._held: Remembered[str, _Counted] = Remembered(_REMEMBERED)

    async def waiting_runs(self, session: AsyncSession) -> list[WaitingRun]:
        """In no order, for a session that writes nothing."""
        versions = _pairs(await session.execute(select(RunRow.id, RunRow.version).where(_WAITS)))
        known = self._runs.known(versions)
        async for run in _read_runs(session, versions.keys() - known.keys()):
            known[run.id] = run
            self._runs.keep(run.id, run.version, run)
        for run_id, free in (await _releasing(session)).items():
            if run_id in known:
                known[run_id] = replace(known[run_id], is_releasing=True, free_from=free)
        for run_id, past in (await _pasts(session)).items():
            if run_id in known:
                known[run_id] = replace(known[run_id], tried=frozenset(past.tried), is_evicted=past.is_evicted)
        return list(known.values())

    async def moves(self, session: AsyncSession, runs: Iterable[WaitingRun]) -> tuple[datetime, ...]:
        """When runs that had lost their clusters were last sent to others; asked only where more of them wait."""
        if not any(run.is_evicted for run in runs):
            return ()
        before = aliased(AttemptRow)
        statement = (
            select(AttemptRow.created_at)
            .join(before, (before.run_id == AttemptRow.run_id) & (before.epoch == AttemptRow.epoch - 1))
            .where(IS_NOT_ENDED, before.on_cluster_loss == OnClusterLoss.REDISPATCH)
            .where(before.end["code"].as_string().in_(CLUSTER_LOSSES))
            .order_by(AttemptRow.created_at.desc())
            .limit(AT_ONCE)
        )
        return tuple(await session.scalars(statement))

    async def ledger(self, session: AsyncSession) -> dict[str, Load]:
        """What live attempts hold, by cluster id: Muster's own count, since Ray counts no plain drivers at all."""
        versions: dict[str, int] = {}
        stale: Counter[str] = Counter()
        columns = (AttemptRow.id, AttemptRow.version, AttemptRow.cluster_id, AttemptRow.state)
        for row in await session.execute(select(*columns).where(and_(*_COUNTS) | IS_STALE)):
            if row.state in COUNTED:
                versions[row.id] = row.version
            else:
                stale[row.cluster_id] += 1
        known = self._held.known(versions)
        async for attempt_id, version, counted in _read_attempts(session, versions.keys() - known.keys()):
            known[attempt_id] = counted
            self._held.keep(attempt_id, version, counted)
        live: dict[str, list[_Counted]] = {cluster_id: [] for cluster_id in stale}
        for counted in known.values():
            live.setdefault(counted.cluster_id, []).append(counted)
        return {
            cluster_id: Load(
                drivers=len(attempts),
                starting=sum(one.is_starting for one in attempts),
                held=tuple(one.held for one in attempts),
                stale=stale[cluster_id],
            )
            for cluster_id, attempts in live.items()
        }


@dataclass(frozen=True, slots=True)
class _Counted:
    cluster_id: str
    is_starting: bool
    held: Held


async def _read_runs(session: AsyncSession, ids: Collection[str]) -> AsyncIterator[WaitingRun]:
    columns = (
        RunRow.id, RunRow.version, RunRow.run_mode, RunRow.state, RunRow.queue, RunRow.enqueued_at,
        cast(RunRow.demand, Text).label("demand"),
        RunRow.priority, RunRow.max_wait_s, RunRow.max_runtime_s, RunRow.not_before, RunRow.cluster, RunRow.cluster_id,
        RunRow.cluster_group, RunRow.resource_group, RunRow.condition, RunRow.waiting_since, RunRow.epoch,
        RunRow.start_timeout_s,
    )  # fmt: skip
    for some in in_parts(ids):
        for row in await session.execute(select(*columns).where(RunRow.id.in_(some), _WAITS)):
            yield WaitingRun(
                id=row.id,
                version=row.version,
                run_mode=RunMode(row.run_mode),
                state=RunState(row.state),
                queue=row.queue,
                enqueued_at=row.enqueued_at,
                demand=_demand(row.demand),
                priority=row.priority,
                max_wait_s=row.max_wait_s,
                max_runtime_s=row.max_runtime_s,
                start_timeout_s=row.start_timeout_s,
                not_before=row.not_before,
                waiting_since=row.waiting_since,
                epoch=row.epoch,
                cluster=row.cluster,
                cluster_id=row.cluster_id,
                cluster_group=row.cluster_group,
                resource_group=row.resource_group,
                condition=condition_from_json(row.condition),
            )


@dataclass(slots=True)
class _Past:
    tried: set[str] = field(default_factory=set)
    """Where an attempt went wrong, and not by its own fault."""
    is_evicted: bool = False
    """The cluster of the latest was lost."""


async def _pasts(session: AsyncSession) -> dict[str, _Past]:
    """By run that waits for a cluster group."""
    waits = (_WAITS, RunRow.cluster_group.is_not(None), RunRow.epoch > 0)
    statement = select(AttemptRow.run_id, AttemptRow.cluster, AttemptRow.end).join(RunRow).where(*waits)
    found: dict[str, _Past] = {}
    for run_id, cluster, end in await session.execute(statement.order_by(AttemptRow.epoch)):
        past = found.setdefault(run_id, _Past())
        past.is_evicted = end is not None and end["code"] in CLUSTER_LOSSES
        if end is not None and EndClass(end["class"]) not in ITS_OWN_DOING:
            past.tried.add(cluster)
    return found


async def _releasing(session: AsyncSession) -> dict[str, datetime | None]:
    """By waiting run whose attempts are not all confirmed over: when another may start all the same."""
    columns = (
        AttemptRow.run_id, AttemptRow.state_since, AttemptRow.end, AttemptRow.on_cluster_loss, AttemptRow.lease_ttl_s,
        AttemptRow.lease_until,
    )  # fmt: skip
    statement = select(*columns).join(RunRow, RunRow.id == AttemptRow.run_id).where(_WAITS, IS_NOT_ENDED)
    found: dict[str, list[datetime | None]] = {}
    for row in await session.execute(statement):
        found.setdefault(row.run_id, []).append(free_from(_earlier(row)))
    return {run_id: latest(instants) for run_id, instants in found.items()}


def _earlier(row: Row[Any]) -> Earlier:
    return Earlier(
        since=row.state_since,
        end_code=EndCode(row.end["code"]),
        on_cluster_loss=OnClusterLoss(row.on_cluster_loss) if row.on_cluster_loss else None,
        lease_ttl_s=row.lease_ttl_s,
        lease_until=row.lease_until,
    )


async def _read_attempts(session: AsyncSession, ids: Collection[str]) -> AsyncIterator[tuple[str, int, _Counted]]:
    columns = (
        AttemptRow.id, AttemptRow.version, AttemptRow.run_id, AttemptRow.cluster_id, AttemptRow.state,
        cast(AttemptRow.demand, Text).label("demand"),
        AttemptRow.placement, AttemptRow.created_at, AttemptRow.started_at,
        RunRow.max_runtime_s, RunRow.start_timeout_s, RunRow.cluster_group,
    )  # fmt: skip
    for some in in_parts(ids):
        statement = (
            select(*columns).join(RunRow, RunRow.id == AttemptRow.run_id).where(AttemptRow.id.in_(some), *_COUNTS)
        )
        for row in await session.execute(statement):
            held = Held(
                run=row.run_id,
                amount=_demand(row.demand).resources,
                ends_by=_ends_by(row),
                nodes={node: resources_from_json(amount) for node, amount in row.placement.items()},
                cluster_group=row.cluster_group,
            )
            yield row.id, row.version, _Counted(row.cluster_id, row.state in _STARTING, held)


def _ends_by(row: Row[Any]) -> datetime | None:
    if row.max_runtime_s is None:
        return None
    starts_by = row.started_at or row.created_at + timedelta(seconds=row.start_timeout_s)
    ends_by: datetime = starts_by + timedelta(seconds=BESIDE_LIMIT_S + row.max_runtime_s)
    return ends_by


@lru_cache(maxsize=1000)
def _demand(text: str) -> Demand:
    """One for all runs that ask the same: they are compared but once."""
    return demand_from_json(json.loads(text))


def _pairs(rows: Iterable[Any]) -> dict[str, int]:
    return {row[0]: row[1] for row in rows}
