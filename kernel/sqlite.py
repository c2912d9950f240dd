"""SQLite's driver with one trip to its thread for each statement, where aiosqlite makes four and more for `BEGIN`.

Such a trip costs more than most statements do, and on a busy machine it waits for its turn: without them a stored run
costs half.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Self

import aiosqlite


async def connect(path: str) -> "Connection":
    connection = Connection(lambda: sqlite3.connect(path, check_same_thread=False))
    await connection
    return connection


class Connection(aiosqlite.Connection):
    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._thread.daemon = True  # it shall not keep a process alive that fails

    _begin: str | None = None
    _is_open = False
    """Known here without asking the thread. Cleared only when it is sure: a rollback too many does no harm."""

    def cursor(self) -> "Cursor":  # type: ignore[override]  # SQLAlchemy is content with what Cursor has
        return Cursor(self)

    def begin(self, sql: str) -> None:
        """To be executed together with the first statement; without one there is nothing to begin."""
        self._begin = sql

    async def commit(self) -> None:
        self._begin = None
        if self._is_open:
            await super().commit()
            self._is_open = False

    async def rollback(self) -> None:
        self._begin = None
        if self._is_open:
            await super().rollback()
            self._is_open = False

    async def run(self, statement: Callable[[sqlite3.Cursor], Any]) -> tuple[Any, int, int | None, list[Any]]:
        """Its description, count of rows, last id, and rows."""
        begin, self._begin = self._begin, None
        self._is_open = self._is_open or begin is not None

        def work(connection: sqlite3.Connection) -> tuple[Any, int, int | None, list[Any]]:
            cursor = connection.cursor()
            if begin:
                cursor.execute(begin)
            statement(cursor)
            rows = cursor.fetchall()
            return cursor.description, cursor.rowcount, cursor.lastrowid, rows

        return await self._execute(work, self._conn)  # type: ignore[no-any-return, no-untyped-call]


class Cursor:
    """What SQLAlchemy asks of an async cursor; the rows come along with the execution."""

    description: Any = None
    rowcount = -1
    lastrowid: int | None = None
    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> None:
        if sql.startswith("BEGIN"):
            self._connection.begin(sql)
        else:
            await self._run(lambda cursor: cursor.execute(sql, parameters))

    async def executemany(self, sql: str, parameters: Iterable[Any]) -> None:
        await self._run(lambda cursor: cursor.executemany(sql, parameters))

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """The real cursor is gone already."""

    async def _run(self, statement: Callable[[sqlite3.Cursor], Any]) -> None:
        self.description, self.rowcount, self.lastrowid, self._rows = await self._connection.run(statement)
