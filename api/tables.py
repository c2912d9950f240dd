"""Rows of people's access: tokens, and answers kept for repeated requests."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base, Named


class TokenRow(Named, Base):
    """`digest` is the SHA-256 of the secret; the secret itself is shown once and kept nowhere."""

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(unique=True)
    digest: Mapped[str] = mapped_column(unique=True)
    user: Mapped[str]
    role: Mapped[str]
    resource_packages: Mapped[list[Any]]
    expires_at: Mapped[datetime | None]


class IdempotencyRow(Base):
    """The first answer to a POST with an `Idempotency-Key`, per user, kept for a day."""

    __tablename__ = "idempotency_keys"

    user: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    request_digest: Mapped[str]
    status: Mapped[int]
    headers: Mapped[dict[str, Any]]
    body: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
