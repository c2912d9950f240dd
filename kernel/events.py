"""Timeline and audit rows, written in the transaction of the change they tell about."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base, Serial, insert_last

SYSTEM = "system"
"""The actor of what Muster does by itself."""


class EventRow(Base):
    """What happened to a thing, for the people who look at that thing."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "target_id", "seq"),)

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    at: Mapped[datetime]
    target_id: Mapped[str]
    type: Mapped[str]
    actor: Mapped[str]
    params: Mapped[dict[str, Any]]


class AuditRow(Base):
    """Who did what, for the people who answer for the installation. `target` is the name where there is one."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "at"), Index(None, "target_type", "target"))

    seq: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    at: Mapped[datetime]
    actor: Mapped[str]
    action: Mapped[str]
    target_type: Mapped[str]
    target: Mapped[str]
    detail: Mapped[dict[str, Any]]


def record(
    session: AsyncSession, target_id: str, type_: str, *, at: datetime, actor: str = SYSTEM, **params: Any
) -> None:
    insert_last(session, EventRow, at=at, target_id=target_id, type=type_, actor=actor, params=params)


def audit(
    session: AsyncSession, action: str, target: tuple[str, str], *, at: datetime, actor: str, **detail: Any
) -> None:
    """`target` is (type, name or id), `action` a verb: `audit(session, "create", ("job", "train"), …)`."""
    named = {"target_type": target[0], "target": target[1]}
    insert_last(session, AuditRow, at=at, actor=actor, action=action, detail=detail, **named)
