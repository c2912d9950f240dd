"""Keyset pages: a cursor names the last row seen, so that rows that come or go never shift a page."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, and_, or_
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
    if request.cursor is not None:
        value, last = _decode(request.cursor, request.sort, column)
        beyond = column < value if descending else column > value
        tie = and_(column == value, key < last if descending else key > last)
        statement = statement.where(or_(beyond, tie))
    order = (column.desc(), key.desc()) if descending else (column.asc(), key.asc())
    rows = (await session.scalars(statement.order_by(*order).limit(request.limit + 1))).all()
    items = rows[: request.limit]
    more = len(rows) > request.limit
    return Page(items=items, next_cursor=_encode(request.sort, items[-1], column, key) if more else None)


def _encode(sort: str, row: Any, column: InstrumentedAttribute[Any], key: InstrumentedAttribute[Any]) -> str:
    value = getattr(row, column.key)
    text = value.isoformat() if isinstance(value, datetime) else value
    packed = json.dumps([sort, text, getattr(row, key.key)], separators=(",", ":"))
    return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")


def _decode(cursor: str, sort: str, column: InstrumentedAttribute[Any]) -> tuple[Any, Any]:
    try:
        packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        made_for, value, last = json.loads(packed)
        if made_for != sort:
            raise InvalidInput("INVALID_CURSOR", pointer="/cursor")
        is_time = isinstance(column.type, UtcDateTime)
        return (datetime.fromisoformat(value) if is_time else value), last
    except (ValueError, TypeError, binascii.Error, UnicodeDecodeError) as error:
        raise InvalidInput("INVALID_CURSOR", pointer="/cursor") from error
