"""How a person comes to a dashboard in a browser, which sends no token when it follows a link.

A ticket in the link is exchanged, once and within a minute, for a session in a cookie (docs/decisions).
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import digest
from api.dashboard.tables import DashboardPassRow
from kernel.errors import Unauthenticated

TICKET_S = 60
SESSION_S = 8 * 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """Of whom, and what it opens."""

    token_digest: str
    cluster_id: str
    host: str
    """As the browser must name it: a page whose own name was made to lead here (DNS rebinding) has no pass."""


async def make_ticket(session: AsyncSession, granted: Pass, now: datetime) -> str:
    await session.execute(delete(DashboardPassRow).where(DashboardPassRow.expires_at <= now))
    return _keep(session, granted, is_ticket=True, expires_at=now + timedelta(seconds=TICKET_S))


async def open_session(session: AsyncSession, ticket: str, host: str, now: datetime) -> tuple[Pass, str]:
    """What the ticket was good for, and the secret of the session it is used up for."""
    statement = delete(DashboardPassRow).where(*_is(ticket, host, now), DashboardPassRow.is_ticket)
    row = (await session.execute(statement.returning(DashboardPassRow))).scalar_one_or_none()
    if row is None:
        raise Unauthenticated("DASHBOARD_LINK_USED", seconds=TICKET_S)
    granted = _pass(row)
    return granted, _keep(session, granted, is_ticket=False, expires_at=now + timedelta(seconds=SESSION_S))


async def find_session(session: AsyncSession, secret: str, host: str, now: datetime) -> Pass:
    statement = select(DashboardPassRow).where(*_is(secret, host, now), ~DashboardPassRow.is_ticket)
    row = (await session.execute(statement)).scalar_one_or_none()
    if row is None:
        raise Unauthenticated("DASHBOARD_LINK_NEEDED")
    return _pass(row)


def _is(secret: str, host: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (
        DashboardPassRow.digest == digest(secret),
        DashboardPassRow.host == host,
        DashboardPassRow.expires_at > now,
    )


def _pass(row: DashboardPassRow) -> Pass:
    return Pass(token_digest=row.token_digest, cluster_id=row.cluster_id, host=row.host)


def _keep(session: AsyncSession, granted: Pass, *, is_ticket: bool, expires_at: datetime) -> str:
    secret = secrets.token_urlsafe(32)
    row = DashboardPassRow(
        digest=digest(secret),
        is_ticket=is_ticket,
        token_digest=granted.token_digest,
        cluster_id=granted.cluster_id,
        host=granted.host,
        expires_at=expires_at,
    )
    session.add(row)
    return secret
