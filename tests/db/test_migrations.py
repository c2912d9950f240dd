"""One history for both databases, up and down, that ends at exactly the tables the code has."""

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from api import migrations
from kernel.db import Base, Database
from kernel.errors import Unavailable
from tests.architecture.source import ROOT, product_files

HEAD = ScriptDirectory.from_config(migrations.configuration()).get_current_head()


def differences(connection: Connection) -> list[object]:
    options = migrations.options()
    metadata = options.pop("target_metadata")
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names()) - {"alembic_version"}


def index_rules(connection: Connection) -> dict[str, str]:
    """Names and definitions, conditions included, which the comparison of Alembic leaves out."""
    sqlite = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    postgresql = (
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
    )
    rows = connection.execute(text(sqlite if connection.dialect.name == "sqlite" else postgresql))
    return {name: " ".join(sql.split()) for name, sql in rows}


def test_every_module_with_rows_is_known() -> None:
    with_rows = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in product_files()
        if "__tablename__ =" in path.read_text("utf-8")
    }
    assert with_rows == {module.__name__ for module in migrations.TABLES}


async def test_up_down_up(empty_database: Database) -> None:
    await migrations.upgrade(empty_database)
    async with empty_database.engine.connect() as connection:
        assert await connection.run_sync(tables) == set(Base.metadata.tables)
    await migrations.downgrade(empty_database, "base")
    async with empty_database.engine.connect() as connection:
        assert await connection.run_sync(tables) == set()
    await migrations.upgrade(empty_database)
    async with empty_database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_indexes_are_those_of_the_tables(empty_database: Database) -> None:
    await migrations.upgrade(empty_database)
    async with empty_database.engine.connect() as connection:
        migrated = await connection.run_sync(index_rules)
    await migrations.downgrade(empty_database, "base")
    async with empty_database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
        assert migrated == await connection.run_sync(index_rules)


async def test_upgrade_again_changes_nothing(database: Database) -> None:
    await migrations.upgrade(database)
    async with database.read() as session:
        assert (await session.execute(text("SELECT version_num FROM alembic_version"))).scalar_one() == HEAD


async def test_a_newer_schema_is_refused(empty_database: Database) -> None:
    await migrations.upgrade(empty_database)
    async with empty_database.write() as session:
        await session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Unavailable, match="DATABASE_NEWER"):
        await migrations.upgrade(empty_database)


async def test_a_schema_of_the_same_name_with_other_columns_is_refused(empty_database: Database) -> None:
    await migrations.upgrade(empty_database)
    async with empty_database.write() as session:
        await session.execute(text("ALTER TABLE tokens RENAME COLUMN role TO rank"))
    with pytest.raises(Unavailable, match="DATABASE_OTHER") as refused:
        await migrations.upgrade(empty_database)
    assert refused.value.params == {"table": "tokens", "columns": ["role"]}


async def test_services_that_start_together_upgrade_once(empty_database: Database) -> None:
    others = [Database(empty_database.url.render_as_string(hide_password=False)) for _ in range(3)]
    await asyncio.gather(*(migrations.upgrade(database) for database in [empty_database, *others]))
    async with empty_database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    for database in others:
        await database.close()
