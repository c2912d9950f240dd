"""`Idempotency-Key`: the first answer to a POST is kept and given again to its repetitions.

The key's row is inserted as the first act of the unit of work that does the change, and filled with the answer as its
last. So there is no moment at which the change is stored without its answer or the other way round; a crash before the
commit leaves neither, one after it leaves both. A repetition that comes while the first is still at work waits on the
row (PostgreSQL) or on the one writing connection (SQLite). What fails is rolled back together with its key.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

from fastapi import Request, Response
from pydantic import BaseModel
from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables import IdempotencyRow
from kernel.errors import Conflict, InvalidInput

KEPT = timedelta(days=1)
MAX_KEY_LENGTH = 200
_KEPT_HEADERS = ("location", "etag")
_INSERT: Mapping[str, Callable[..., Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Replay(Exception):
    """No error: it carries the first answer out of a handler."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


async def answer_replay(request: Request, replay: Exception) -> Response:
    del request
    assert isinstance(replay, Replay)  # noqa: S101 - it is registered for nothing else
    return replay.response


@dataclass(frozen=True, slots=True)
class Key:
    user: str
    key: str
    digest: str
    """Of the method, the address and the body: what makes two requests the same."""

    @classmethod
    def of(cls, request: Request, user: str, key: str, body: bytes) -> "Key":
        """`body` is the request's, or what stands for it where it was a stream."""
        if not 0 < len(key) <= MAX_KEY_LENGTH or not key.isprintable():
            raise InvalidInput("INVALID_VALUE", pointer="/Idempotency-Key", allowed=f"length 1–{MAX_KEY_LENGTH}")
        told = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
        return cls(user, key, hashlib.sha256(told + body).hexdigest())


async def reserve(session: AsyncSession, key: Key, now: datetime) -> None:
    """Take the key for this unit of work, or raise `Replay` with the first answer, or IDEMPOTENCY_KEY_REUSED."""
    row = {"user": key.user, "key": key.key, "request_digest": key.digest, "created_at": now}
    insert = _INSERT[session.get_bind().dialect.name](IdempotencyRow).values(**row, status=0, headers={}, body=None)
    if await session.scalar(insert.on_conflict_do_nothing().returning(IdempotencyRow.key)) is not None:
        return
    _repeat((await session.scalars(select(IdempotencyRow).where(*_is(key)))).one(), key)


async def look_up(session: AsyncSession, key: Key) -> None:
    """Raise like `reserve`, and take nothing: for what has to be done before the unit of work begins."""
    kept = (await session.scalars(select(IdempotencyRow).where(*_is(key)))).one_or_none()
    if kept is not None:
        _repeat(kept, key)


async def keep(session: AsyncSession, key: Key, response: Response, out: BaseModel | None) -> None:
    """`out` is the body to answer with, less what may be shown only once."""
    headers = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
    body = None if out is None else out.model_dump(mode="json", by_alias=True)
    values = {"status": response.status_code, "headers": headers, "body": body}
    await session.execute(update(IdempotencyRow).where(*_is(key)).values(**values))


async def prune(session: AsyncSession, now: datetime) -> None:
    await session.execute(delete(IdempotencyRow).where(IdempotencyRow.created_at < now - KEPT))


def _repeat(kept: IdempotencyRow, key: Key) -> NoReturn:
    if kept.request_digest != key.digest:
        raise Conflict("IDEMPOTENCY_KEY_REUSED")
    raise Replay(_response(kept))


def _is(key: Key) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return IdempotencyRow.user == key.user, IdempotencyRow.key == key.key


def _response(row: IdempotencyRow) -> Response:
    content = b"" if row.body is None else json.dumps(row.body, ensure_ascii=False, separators=(",", ":")).encode()
    headers = {**row.headers, "Idempotency-Replayed": "true"}
    return Response(content, status_code=row.status, headers=headers, media_type="application/json")
