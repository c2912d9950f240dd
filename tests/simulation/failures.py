"""Seeded failure schedules, one after the other: `python -m tests.simulation.failures [FIRST] COUNT`."""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from api import migrations
from kernel.db import Database
from tests.simulation.failing_world import FailingWorld, Told
from tests.simulation.failure_schedules import schedule_of


async def migrated(file: Path) -> Path:
    """An empty database, to be copied for each schedule."""
    database = Database(f"sqlite:///{file}")
    await migrations.upgrade(database)
    await database.close()
    return file


async def play(seed: int, template: Path, folder: Path) -> Told:
    file = folder / f"{seed}.db"
    shutil.copyfile(template, file)
    database = Database(f"sqlite:///{file}")
    try:
        return await FailingWorld(schedule_of(seed), database, folder).play()
    finally:
        await database.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{file}{suffix}")  # noqa: PTH108 - one line of blocking is none in a simulation


async def play_all(seeds: Iterable[int]) -> int:
    """How many went wrong; each is told with its seed."""
    all_told = Told()
    failed = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        template = await migrated(Path(folder) / "template.db")
        for seed in seeds:
            told = await play(seed, template, Path(folder))
            all_told.add(told)
            if told.problems:
                failed += 1
                _say(f"seed {seed}: {told.problems}")
    _say(f"{all_told}; {time.monotonic() - began:.0f} s")
    _say(f"schedules that went wrong: {failed}")
    return failed


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    *first, count = map(int, sys.argv[1:])
    begin = first[0] if first else 0
    sys.exit(asyncio.run(play_all(range(begin, begin + count))) > 0)
