"""Keyset pages: a cursor names the last row seen, so that rows that come or go never shift a page."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import BigInteger, Select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from kernel.db import UtcDateTime
from kernel.errors import InvalidInput

Item = TypeVar("Item")

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """`sort` is a field name, with `-` before it for descending."""

    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    sort: str = "-created_at"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[Item]):
    items: Sequence[Item]
    next_cursor: str | None


async def paginate(
    session: AsyncSession,
    statement: Select[Item],
    request: PageRequest,
    *,
    sortable: Mapping[str, InstrumentedAttribute[Any]],
    key: InstrumentedAttribute[Any],
) -> Page[Item]:
    """One page of a one-entity SELECT, ordered by a column of `sortable` (none of them nullable) and then by `key`."""
    name = request.sort.removeprefix("-")
    if name not in sortable:
        raise InvalidInput("INVALID_SORT", pointer="/sort", sort=request.sort, allowed=sorted(sortable))
    column, descending = sortable[name], request.sort.startswith("-")
    columns = (key,) if column is key else (column, key)
    if request.cursor is not None:
        place, last = tuple_(*columns), _decode(request.cursor, request.sort, column, key)[-len(columns) :]
        statement = statement.where(place < last if descending else place > last)
    order = [one.desc() if descending else one.asc() for one in columns]
    rows = (await session.scalars(statement.order_by(*order).limit(request.limit + 1))).all()
    items = rows[: request.limit]
    more = len(rows) > request.limit
    return Page(items=items, next_cursor=_encode(request.sort, items[-1], column, key) if more else None)


def _encode(sort: str, row: Any, column: InstrumentedAttribute[Any], key: InstrumentedAttribute[Any]) -> str:
    value = getattr(row, column.key)
    text = value.isoformat() if isinstance(value, datetime) else value
    packed = json.dumps([sort, text, getattr(row, key.key)], separators=(",", ":"))
    return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")


def _decode(
    cursor: str, sort: str, column: InstrumentedAttribute[Any], key: InstrumentedAttribute[Any]
) -> tuple[Any, Any]:
    try:
        packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        made_for, value, last = json.loads(packed)
        position = _value_for(column, value), _value_for(key, last)
    except (ValueError, TypeError) as error:
        raise InvalidInput("INVALID_CURSOR", pointer="/cursor") from error
    if made_for != sort:
        raise InvalidInput("INVALID_CURSOR", pointer="/cursor")
    return position


def _value_for(column: InstrumentedAttribute[Any], value: Any) -> Any:
    """Whatever people write into a cursor reaches the database only as something its column may hold."""
    if isinstance(column.type, UtcDateTime):
        at = datetime.fromisoformat(value)
        if at.tzinfo is None:
            raise ValueError("a time without a zone")
        return at
    if type(value) is not column.type.python_type:
        raise TypeError(value)
    if isinstance(value, int) and abs(value) >= 2 ** (63 if isinstance(column.type, BigInteger) else 31):
        raise ValueError(value)
    if isinstance(value, str) and "\0" in value.encode().decode():
        raise ValueError(value)
    return value
