"""Rows of volumes."""

from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base, Named


class VolumeRow(Named, Base):
    __tablename__ = "volumes"

    name: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    source: Mapped[dict[str, Any]]
    credential: Mapped[str | None] = mapped_column(index=True)
