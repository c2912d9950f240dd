"""`python -m api.migrations [--reset] "what changes"`: draft the next revision; with --reset the first one anew."""

import asyncio
import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from api.migrations import configuration, upgrade
from kernel.db import Database

VERSIONS = Path(__file__).parent / "versions"


async def draft(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/draft.db")
        try:
            if present := ScriptDirectory.from_config(configuration()).get_current_head():
                await upgrade(database, present)  # by its number: the tables are ahead of it
            async with database.engine.begin() as connection:
                await connection.run_sync(_write, message)
        finally:
            await database.close()


def _write(connection: Connection, message: str) -> None:
    config = configuration(connection)
    count = sum(1 for _ in ScriptDirectory.from_config(config).walk_revisions())
    revision = f"{count + 1:04d}"
    command.revision(config, message, autogenerate=True, rev_id=revision)
    (file,) = VERSIONS.glob(f"{revision}_*.py")
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "###" not in line))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    *flags, message = sys.argv[1:]
    if "--reset" in flags:
        for file in VERSIONS.glob("*.py"):
            file.unlink()
    asyncio.run(draft(message))
