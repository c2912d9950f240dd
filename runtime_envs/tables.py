"""Rows of packages, of uploads on their way to become one, and of the Ray client's uploads."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base, Named


class PackageRow(Named, Base):
    __tablename__ = "packages"

    sha256: Mapped[str] = mapped_column(unique=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    unpacked_bytes: Mapped[int] = mapped_column(BigInteger)
    entry_count: Mapped[int]
    file_name: Mapped[str]
    source: Mapped[dict[str, Any]]
    warnings: Mapped[list[Any]]


class RayUploadRow(Base):
    __tablename__ = "ray_uploads"

    owner: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    blob_key: Mapped[str]
    last_used_at: Mapped[datetime] = mapped_column(index=True)


class UploadRow(Named, Base):
    __tablename__ = "uploads"

    file_name: Mapped[str]
    sha256: Mapped[str | None]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    offset_bytes: Mapped[int] = mapped_column(BigInteger)
    parts: Mapped[list[Any]]
    expires_at: Mapped[datetime] = mapped_column(index=True)
    package: Mapped[str | None]
