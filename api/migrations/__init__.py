"""The schema's history, for SQLite and PostgreSQL alike: expand, migrate, contract; never change what was released.

`python -m api.migrations "what changes"` drafts the next revision from the tables.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, DateTime, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

import api.dashboard.tables
import api.tables
import cluster_groups.tables
import kernel.events
import kernel.lease
import rayjobs.tables
import runtime_envs.credentials
import runtime_envs.tables
import runtime_envs.volumes.tables
from kernel.db import Base, Database, UtcDateTime
from kernel.errors import Unavailable

TABLES = (
    api.dashboard.tables,
    api.tables,
    cluster_groups.tables,
    kernel.events,
    kernel.lease,
    rayjobs.tables,
    runtime_envs.credentials,
    runtime_envs.tables,
    runtime_envs.volumes.tables,
)
"""All modules with rows: what is not imported is not in the metadata."""

HEAD = "head"
_LOCK = 0x6D757374
"""Of PostgreSQL's advisory locks ours: "must"."""


async def upgrade(database: Database, revision: str = HEAD) -> None:
    """Bring the schema to `revision`, in one transaction, one service at a time."""
    await _locked(database, lambda connection: _upgrade(connection, revision))


async def downgrade(database: Database, revision: str) -> None:
    await _locked(database, lambda connection: command.downgrade(configuration(connection), revision))


def configuration(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    config.attributes["connection"] = connection
    return config


def options() -> dict[str, Any]:
    """How Alembic looks at tables, here and in the test that compares them with the migrations."""
    return {
        "target_metadata": Base.metadata,
        "render_as_batch": True,
        "render_item": _render_item,
        "compare_type": True,
        "compare_server_default": True,
        "transactional_ddl": True,
    }


def _upgrade(connection: Connection, revision: str) -> None:
    config = configuration(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    present = MigrationContext.configure(connection).get_current_revision()
    if present is not None and present not in known:
        raise Unavailable("DATABASE_NEWER", revision=present)
    command.upgrade(config, revision)
    if revision == HEAD:
        _refuse_other_columns(connection)


def _refuse_other_columns(connection: Connection) -> None:
    """A development version may have left a schema of the same name that is another."""
    there = {
        name: {one["name"] for one in found} for (_, name), found in inspect(connection).get_multi_columns().items()
    }
    for table in Base.metadata.sorted_tables:
        if lacking := set(table.columns.keys()) - there.get(table.name, set()):
            raise Unavailable("DATABASE_OTHER", table=table.name, columns=sorted(lacking))


async def _locked(database: Database, change: Callable[[Connection], None]) -> None:
    async with database.engine.connect() as connection:
        if database.dialect == "sqlite":
            await _sqlite(connection, change)
            return
        async with connection.begin():
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            await connection.run_sync(change)


async def _sqlite(connection: AsyncConnection, change: Callable[[Connection], None]) -> None:
    """BEGIN IMMEDIATE is the lock. Foreign keys rest meanwhile: rebuilding a table would cascade into its children."""
    await connection.run_sync(_pragma, "foreign_keys=OFF")
    try:
        async with connection.begin():
            await connection.run_sync(change)
            broken = (await connection.execute(text("PRAGMA foreign_key_check"))).all()
            if broken:
                raise RuntimeError(f"the migration leaves rows without their parents: {broken[:3]}")
    finally:
        await connection.run_sync(_pragma, "foreign_keys=ON")


def _pragma(connection: Connection, setting: str) -> None:
    """Below SQLAlchemy, which would begin a transaction, where this pragma does nothing."""
    cursor = connection.connection.cursor()
    cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _render_item(kind: str, item: Any, _context: Any) -> str | bool:
    """Migrations stand by themselves: what the code calls its time type may change."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return f"sa.DateTime(timezone={item.impl.timezone})" if isinstance(item.impl, DateTime) else False
    return False
