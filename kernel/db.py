"""One way to the database, on SQLite and PostgreSQL: `read()` for looking, `write()` for one committed unit of work.

SQLite gets WAL, full durability and exactly one writing connection, so that writers queue in order instead of
failing as "database is locked".
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache, partial
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Integer,
    MetaData,
    Table,
    bindparam,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from kernel import sqlite
from kernel.errors import Unavailable
from kernel.together import Result, Together, Unit

Answer = TypeVar("Answer")

_KEYS_AT_ONCE = 1000
_KEY = "key_of_row"
_RowChange = tuple[str, int | None, dict[str, Any]]
_to_json = partial(json.dumps, ensure_ascii=False)
"""Text as it is: SQLite does not find a key that was stored in escapes."""

_engine = partial(create_async_engine, json_serializer=_to_json, hide_parameters=True)
"""Without the values of a statement in its errors, which are logged: some are secrets."""


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC in Python; `timestamptz` on PostgreSQL, naive UTC text on SQLite."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        del dialect
        return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)


Serial = BigInteger().with_variant(Integer(), "sqlite")
"""A counting key: SQLite counts only plain INTEGER primary keys."""


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration point
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        list[Any]: JSON,
    }


class Named:
    """Columns every resource has (api.md §1). `version` guards concurrent changes, whoever makes them."""

    id: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime]
    created_by: Mapped[str]
    version: Mapped[int] = mapped_column(default=1)


class Superseded(Exception):
    """Somebody changed a row since it was read: nothing of this unit of work is written."""


class Database:
    """The engines of one installation. `url` as SQLAlchemy writes it, less the driver: `sqlite:///f`, `postgresql://…`."""

    def __init__(self, url: str) -> None:
        self.url = _with_driver(url)
        self.dialect = self.url.get_dialect().name
        if self.dialect == "sqlite":
            self._writer = _sqlite_engine(self.url, begin="BEGIN IMMEDIATE", pool_size=1)
            self._reader = _sqlite_engine(self.url, begin="BEGIN", pool_size=4)
        else:
            self._writer = self._reader = _engine(self.url, pool_size=10, max_overflow=10, pool_pre_ping=True)
        self._together = Together(self.write)

    @property
    def engine(self) -> AsyncEngine:
        return self._writer

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        async with AsyncSession(self._reader, expire_on_commit=False, autoflush=False) as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """Commits when the block ends, rolls back when it raises; after a commit, runs what `after_commit` took."""
        async with AsyncSession(self._writer, expire_on_commit=False) as session:
            async with session.begin():
                yield session
                await _write_last(session)
            for callback in session.info.get("after_commit", ()):
                callback()

    async def write_together(self, unit: Unit[Result]) -> Result:
        """Like `write()`, sharing the transaction of what else comes now. `unit` may have to be done a second time."""
        return await self._together.do(unit)

    async def ping(self) -> None:
        try:
            async with self.read() as session:
                await session.execute(text("SELECT 1"))
        except (DBAPIError, OSError, TimeoutError) as error:
            raise Unavailable("DATABASE_UNREACHABLE", reason=str(error.__cause__ or error)) from error

    async def analyze(self) -> None:
        """Have SQLite count its rows, as PostgreSQL does by itself; else it guesses which index is the best."""
        if self.dialect != "sqlite":
            return
        async with self._writer.begin() as connection:
            # Made anew, since connections that are open take notice of a new table only.
            await connection.execute(text("DROP TABLE IF EXISTS sqlite_stat1"))
            await connection.execute(text("ANALYZE"))

    async def close(self) -> None:
        await self._writer.dispose()
        if self._reader is not self._writer:
            await self._reader.dispose()


def insert_last(session: AsyncSession, row: type[Base], **values: Any) -> None:
    """At the end of this unit of work, all of a kind in one statement: for rows that nobody reads before.

    Cheaper by far than `session.add`, which keeps track of each, and asks one by one for keys that are counted.
    """
    session.info.setdefault("last", {}).setdefault(row, []).append(values)


def update_last(session: AsyncSession, row: type[Base], key: str, version: int | None, **values: Any) -> None:
    """At the end of this unit of work, like to like in one statement; `key` is the value of the only primary key.

    Raises Superseded there, before anything is written, when the row is no longer at `version`, which is raised by one.
    None: the row has no version, or it does not matter, nor whether it is there.
    """
    session.info.setdefault("changes", {}).setdefault(row, []).append((key, version, values))


def after_commit(session: AsyncSession, callback: Callable[[], None]) -> None:
    """Run `callback` once this unit of work is durable (a hint to a loop, say); never when it is rolled back."""
    session.info.setdefault("after_commit", []).append(callback)


async def asked_once(session: AsyncSession, question: Hashable, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer that this unit of work got first: for what those who share it all ask, and none of them changes."""
    answers: dict[Hashable, Answer] = session.info.setdefault("answers", {})
    if question not in answers:
        answers[question] = await ask()
    return answers[question]


async def versions(session: AsyncSession, row: type[Base], keys: Sequence[str]) -> dict[str, int]:
    """Of those rows that are there, which nobody else changes before this unit of work is over."""
    table = _table(row)
    (key,) = table.primary_key
    found: dict[str, int] = {}
    for some in in_parts(sorted(keys)):  # the same for everybody, or two that lock the same rows would deadlock
        statement = select(key, table.c.version).where(key.in_(some))
        rows = await session.execute(statement.order_by(key).with_for_update())
        found |= {row[0]: row[1] for row in rows}
    return found


async def guarded_update(session: AsyncSession, row: type[Any], key: str, version: int, **values: Any) -> bool:
    """Write `values` unless somebody changed the row since it was read at `version`. False: drop them, look again."""
    statement = (
        update(row)
        .where(row.id == key, row.version == version)
        .values(version=version + 1, **values)
        .returning(row.id)
        .execution_options(synchronize_session=False)
    )
    return (await session.execute(statement)).scalar_one_or_none() is not None


def in_parts(keys: Iterable[str]) -> Iterator[list[str]]:
    """A database takes only so many parameters."""
    every = list(keys)
    return (every[start : start + _KEYS_AT_ONCE] for start in range(0, len(every), _KEYS_AT_ONCE))


async def _write_last(session: AsyncSession) -> None:
    changes: dict[type[Base], list[_RowChange]] = session.info.pop("changes", {})
    rows: dict[type[Base], list[dict[str, Any]]] = session.info.pop("last", {})
    if rows or changes:
        await session.flush()  # what they refer to
    for row in sorted(changes, key=_rank):
        await _update_all(session, row, changes[row])
    for row in sorted(rows, key=_rank):
        await session.execute(insert(row), rows[row])


async def _update_all(session: AsyncSession, row: type[Base], changes: Sequence[_RowChange]) -> None:
    expected = {key: version for key, version, _ in changes if version is not None}
    if len(expected) < sum(version is not None for _, version, _ in changes):
        raise Superseded  # the second change of a row was decided on before the first
    if expected and await versions(session, row, list(expected)) != expected:
        raise Superseded
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for key, version, values in sorted(changes, key=itemgetter(0)):  # for those that were not locked just now
        new = values if version is None else {**values, "version": version + 1}
        alike.setdefault(tuple(sorted(new)), []).append({**new, _KEY: key})
    table = _table(row)
    (column,) = table.primary_key
    connection = await session.connection()
    for parameters in alike.values():
        await connection.execute(update(table).where(column == bindparam(_KEY)), parameters)


@cache
def _rank(row: type[Base]) -> int:
    """Parents before their children."""
    return Base.metadata.sorted_tables.index(_table(row))


def _table(row: type[Base]) -> Table:
    return row.__table__  # type: ignore[return-value]  # a class's table is a Table


def _with_driver(url: str) -> Any:
    parsed = make_url(url)
    driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}.get(parsed.drivername)
    return parsed.set(drivername=driver) if driver else parsed


def _sqlite_engine(url: Any, *, begin: str, pool_size: int) -> AsyncEngine:
    creator = partial(sqlite.connect, url.database)
    engine = _engine(url, async_creator=creator, pool_size=pool_size, max_overflow=0, pool_timeout=60)

    @event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy, not the driver, says BEGIN
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine
