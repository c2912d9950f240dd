"""What every named resource is found by."""

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import Select
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.errors import NotFound

Row = TypeVar("Row", bound=Any)


async def by_ref(session: AsyncSession, rows: Select[Row], ref: str, kind: str, *, lock: bool = False) -> Row:
    """The one of `rows` with this id or name."""
    columns = rows.column_descriptions[0]["entity"]
    row = await one(session, rows.where((columns.id == ref) | (columns.name == ref)), lock=lock)
    if row is None:
        raise NotFound("NOT_FOUND", kind=kind, ref=ref)
    return row


async def one(session: AsyncSession, rows: Select[Row], *, lock: bool = False) -> Row | None:
    """`lock` reads it anew and keeps others from writing it until the transaction ends."""
    if lock:
        rows = rows.with_for_update().execution_options(populate_existing=True)
    found: Row | None = await session.scalar(rows)
    return found


def filtered(rows: Select[Row], filters: Mapping[str, str | None]) -> Select[Row]:
    """`filters` by column; None takes all."""
    return rows.filter_by(**{name: value for name, value in filters.items() if value is not None})
