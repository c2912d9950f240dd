"""A page of 50 of 100,000 stored runs, filtered and sorted, through the HTTP API, on SQLite and PostgreSQL."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import text

from benchmarks.history import write_history
from benchmarks.report import Row, median_ms
from benchmarks.service import Service, service
from kernel.db import Database
from tests.postgres import find_initdb, postgres_server

RUNS = 100_000
ROUNDS = 20
GOAL_S = 0.020
QUERIES = {
    "newest": {},
    "oldest": {"sort": "created_at"},
    "by state": {"state": "FAILED"},
    "a rare state": {"state": "QUEUE_TIMEOUT", "sort": "created_at"},
    "by job": {"job": "job 3"},
    "a rare job": {"job": "job 199"},
    "by user": {"created_by": "user7"},
    "by cluster and state": {"cluster": "c3", "state": "STOPPED"},
    "by group, state and user": {"cluster_group": "g2", "state": "FAILED", "created_by": "user29"},
    "by resource group, by job": {"resource_group": "r4", "sort": "job"},
    "by tag": {"tag": "team:team11"},
    "by tag and state": {"tag": "stage:dev", "state": "STOPPED"},
    "sorted by state": {"sort": "-state"},
    "sorted by job": {"sort": "job"},
    "nothing found": {"cluster": "c3", "created_by": "nobody"},
}
LATER = "newest, 20 pages on"


def measure(scale: float) -> Sequence[Row]:
    runs = int(RUNS * min(1.0, scale * 5))
    with service() as muster:
        url = f"sqlite:///{muster.state_dir / 'muster.db'}"
        rows = [_row("SQLite", _samples(muster, url, runs, scale), runs)]
    with _postgres() as server:
        if server is None:
            return [*rows, Row(what="page of 50 runs, PostgreSQL", ours="not measured: there is no initdb here")]
        with service(server) as muster:
            return [*rows, _row("PostgreSQL", _samples(muster, server, runs, scale), runs)]


@contextmanager
def _postgres() -> Iterator[str | None]:
    initdb = find_initdb()
    if initdb is None:
        yield None
        return
    with postgres_server(initdb) as address:
        yield f"{address}postgres"


def _samples(muster: Service, url: str, runs: int, scale: float) -> dict[str, list[float]]:
    """By query; asked for in turns, over one connection."""
    asyncio.run(_fill(url, runs))
    queries = {name: {**filters, "limit": 50} for name, filters in QUERIES.items()}
    queries[LATER] = {"limit": 50, "cursor": _far_cursor(muster)}
    samples: dict[str, list[float]] = {name: [] for name in queries}
    for count in range(max(3, int(ROUNDS * scale)) + 1):
        for name, query in queries.items():
            start = time.perf_counter()
            muster.get("/runs", **query)
            if count:  # the first round warms up
                samples[name].append(time.perf_counter() - start)
    return samples


def _far_cursor(muster: Service) -> str:
    cursor = None
    for _ in range(20):
        page = muster.get("/runs", limit=50, **({"cursor": cursor} if cursor else {}))
        cursor = page["next_cursor"]
    return str(cursor)


async def _fill(url: str, runs: int) -> None:
    database = Database(url)
    await write_history(database, runs)
    await database.analyze()  # as the service does each day
    if database.dialect == "postgresql":  # as its own autovacuum does a minute later
        async with database.write() as session:
            await session.execute(text("ANALYZE"))
    await database.close()


def _row(kind: str, samples: dict[str, list[float]], runs: int) -> Row:
    medians = {name: statistics.median(times) for name, times in samples.items()}
    slowest = max(medians, key=lambda name: medians[name])
    every = [sample for times in samples.values() for sample in times]
    return Row(
        what=f"page of 50 of {runs:,} runs, {kind}: {len(samples)} queries (the slowest)",
        ours=f"{median_ms(every)} ({slowest}: {medians[slowest] * 1e3:.0f} ms)",
        goal=f"p50 ≤ {GOAL_S * 1e3:.0f} ms",
        met=medians[slowest] <= GOAL_S,
    )
