"""What every test may ask for: a migrated database of either kind, and no way out of this machine."""

import asyncio
import itertools
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from sqlalchemy import text

from api import migrations
from api.log_setup import set_up_log
from api.settings import Settings
from kernel.db import Base, Database
from tests.builders.object_stores import Place, cos_place, s3_place
from tests.builders.seaweedfs import S3Server, s3_server
from tests.builders.seaweedfs import built as seaweedfs_program
from tests.postgres import find_initdb, postgres_server

NO_SKIP = "MUSTER_TEST_NO_SKIP"
LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0")
_number = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    del config
    for name in [name for name in os.environ if name.startswith("MUSTER_") and name != NO_SKIP]:
        del os.environ[name]  # the settings of whoever runs the tests are none of the tests'
    sys.addaudithook(_stay_on_this_host)
    set_up_log(Settings())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "postgresql" in item.name:
            item.add_marker(pytest.mark.postgres)


def lacking(what: str) -> NoReturn:
    if os.environ.get(NO_SKIP):
        pytest.fail(f"needs {what}, and {NO_SKIP} is set")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    initdb = find_initdb()
    if initdb is None:
        lacking("initdb (PostgreSQL's server package)")
    with postgres_server(initdb) as address:
        yield address


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    program = seaweedfs_program()
    if program is None:
        lacking("SeaweedFS (make s3-server: once, with Go)")
    with s3_server(program) as server:
        yield server


@pytest.fixture(scope="session", name="s3_place")
def s3_place_(seaweedfs: S3Server) -> Place:
    return s3_place(seaweedfs)


@pytest.fixture(scope="session", name="cos_place")
def cos_place_() -> Iterator[Place]:
    with cos_place() as place:
        yield place


@pytest.fixture(params=["s3", "cos"])
def place(request: pytest.FixtureRequest) -> Place:
    """A server with buckets, of either kind."""
    found: Place = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(scope="session")
def postgres_database(postgres: str) -> str:
    """A migrated one, emptied before each test: cloning a template takes a hundred times as long."""
    asyncio.run(_create_database(postgres, "muster"))
    asyncio.run(_migrate(f"{postgres}muster"))
    return f"{postgres}muster"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(_migrate(f"sqlite:///{file}"))
    return file


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database of its own for each test."""
    if request.param == "sqlite":
        file = tmp_path / "muster.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), file)
        return f"sqlite:///{file}"
    url: str = request.getfixturevalue("postgres_database")
    asyncio.run(_empty(url))
    return url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Not migrated."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    else:
        address: str = request.getfixturevalue("postgres")
        name = f"empty_{next(_number)}"
        await _create_database(address, name)
        database = Database(address + name)
    yield database
    await database.close()


async def _migrate(url: str) -> None:
    database = Database(url)
    await migrations.upgrade(database)
    await database.close()


async def _create_database(address: str, name: str) -> None:
    server = Database(f"{address}postgres")
    async with server.engine.connect() as connection:
        outside_transactions = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await outside_transactions.execute(text(f"CREATE DATABASE {name} TEMPLATE template0"))
    await server.close()


async def _empty(url: str) -> None:
    deletes = " ".join(f"DELETE FROM {name};" for name in Base.metadata.tables)  # noqa: S608 - names of our own
    database = Database(url)
    async with database.write() as session:  # as a replica: without foreign keys, so in any order
        await session.execute(text(f"DO $$ BEGIN SET LOCAL session_replication_role = replica; {deletes} END $$"))
    await database.close()


def _stay_on_this_host(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
        if not host.startswith(LOOPBACK):
            raise RuntimeError(f"a test would connect to {host}: only loopback is allowed")
