"""SQLite's driver with one trip to its thread for each statement, where aiosqlite makes four.

Such a trip costs more than most statements do: by this a stored run costs half.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import aiosqlite


async def connect(path: str) -> "Connection":
    return await Connection(lambda: sqlite3.connect(path, check_same_thread=False), iter_chunk_size=64)


class Connection(aiosqlite.Connection):
    def cursor(self) -> "Cursor":  # type: ignore[override] - SQLAlchemy is content with what Cursor has
        return Cursor(self)

    async def in_thread(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        return await self._execute(work, self._conn)  # type: ignore[no-untyped-call]


class Cursor:
    """What SQLAlchemy asks of an async cursor; the rows come along with the execution."""

    description: Any = None
    rowcount = -1
    lastrowid: int | None = None
    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def __aenter__(self) -> "Cursor":
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> None:
        await self._run(lambda cursor: cursor.execute(sql, parameters))

    async def executemany(self, sql: str, parameters: Iterable[Any]) -> None:
        await self._run(lambda cursor: cursor.executemany(sql, parameters))

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def close(self) -> None:
        """The real cursor is gone already."""

    async def _run(self, statement: Callable[[sqlite3.Cursor], Any]) -> None:
        def work(connection: sqlite3.Connection) -> Any:
            cursor = connection.cursor()
            statement(cursor)
            rows = cursor.fetchall()
            return cursor.description, cursor.rowcount, cursor.lastrowid, rows

        self.description, self.rowcount, self.lastrowid, self._rows = await self._connection.in_thread(work)
