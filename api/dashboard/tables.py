"""Rows of links to dashboards and of the sessions they open."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base


class DashboardPassRow(Base):
    """A ticket, good once, or a session; `digest` is the SHA-256 of its secret.

    It holds for one cluster, at the Host it was asked for at, and for as long as there is a token of that digest.
    """

    __tablename__ = "dashboard_passes"

    digest: Mapped[str] = mapped_column(primary_key=True)
    is_ticket: Mapped[bool]
    token_digest: Mapped[str]
    cluster_id: Mapped[str]
    host: Mapped[str]
    expires_at: Mapped[datetime]
