"""A long history of runs, written straight into the tables: a hundred thousand of them, of which none is live."""

import itertools
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert
from ulid import ULID

from cluster_groups.model.demand import Demand
from kernel.db import Base, Database
from kernel.ids import new_id
from kernel.resources import Resources
from rayjobs import run_store
from rayjobs.tables import AttemptRow, JobRow, RunRow, RunTagRow

JOBS = 200
CLUSTERS = 20
USERS = 30
DAYS = 90
BATCH = 5_000
ENDS = {  # state → its share and how it ended
    "SUCCEEDED": (90, "completed", "ALL_TASKS_DONE"),
    "FAILED": (7, "user", "EXIT_NONZERO"),
    "STOPPED": (2, "stopped", "BY_USER"),
    "QUEUE_TIMEOUT": (1, "timeout", "MAX_WAIT"),
}
DEMAND = run_store.demand_to_json(Demand(resources=Resources(cpu=1, memory_gib=1)))


async def write_history(database: Database, count: int) -> None:
    chance = random.Random(1)
    now = datetime.now(UTC)
    jobs = [_job(number, now) for number in range(JOBS)]
    await _insert(database, JobRow, jobs)
    weights = [1 / (rank + 1) for rank in range(JOBS)]  # a few jobs have most of the runs
    chosen = chance.choices(jobs, weights, k=count)
    ages = sorted((chance.uniform(0, DAYS) for _ in range(count)), reverse=True)
    runs = (_run(chance, job, now - timedelta(days=age)) for job, age in zip(chosen, ages, strict=True))
    for batch in _batches(runs):
        await _insert(database, RunRow, batch)
        await _insert(database, AttemptRow, [_attempt(run) for run in batch])
        await _insert(database, RunTagRow, [tag for run in batch for tag in _tags(run)])


def _job(number: int, now: datetime) -> dict[str, Any]:
    return {
        "id": new_id("job"),
        "name": f"job {number}",
        "origin": "api",
        "revision": 1,
        "run_mode": "cluster",
        "created_at": now - timedelta(days=DAYS),
        "created_by": f"user{number % USERS}",
        "version": 1,
    }


def _run(chance: random.Random, job: dict[str, Any], at: datetime) -> dict[str, Any]:
    state = chance.choices(list(ENDS), [share for share, _, _ in ENDS.values()])[0]
    _, end_class, code = ENDS[state]
    cluster = chance.randrange(CLUSTERS)
    ended_at = at + timedelta(seconds=chance.uniform(5, 5000))
    return {
        "id": f"run_{str(ULID.from_datetime(at)).lower()}",
        "created_at": at,
        "created_by": job["created_by"],
        "version": 6,
        "job_id": job["id"],
        "job_revision": 1,
        "job_name": job["name"],
        "run_mode": "cluster",
        "origin": "api",
        "queue": f"cluster/c{cluster}",
        "demand": DEMAND,
        "cluster": f"c{cluster}",
        "cluster_id": f"clu_{cluster}",
        "cluster_group": f"g{cluster % 5}",
        "resource_group": f"r{cluster % 10}",
        "state": state,
        "end": {"class": end_class, "code": code, "exit_code": int(state == "FAILED"), "params": {}},
        "epoch": 1,
        "enqueued_at": at,
        "waiting_since": at,
        "allocated_at": at + timedelta(seconds=1),
        "started_at": at + timedelta(seconds=3),
        "ended_at": ended_at,
    }


def _attempt(run: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{run['id']}-a1",
        "version": 5,
        "run_id": run["id"],
        "epoch": 1,
        "cluster_id": run["cluster_id"],
        "cluster": run["cluster"],
        "demand": DEMAND,
        "state": "ENDED",
        "state_since": run["ended_at"],
        "created_at": run["allocated_at"],
        "posted_at": run["allocated_at"],
        "started_at": run["started_at"],
        "ended_at": run["ended_at"],
        "driver_address": "http://127.0.0.2:52365",
        "end": run["end"],
    }


def _tags(run: dict[str, Any]) -> list[dict[str, Any]]:
    number = int(run["job_name"].split()[1])
    tags = {"team": f"team{number % 12}", "stage": "prod" if number % 3 else "dev"}
    return [{"run_id": run["id"], "key": key, "value": value} for key, value in tags.items()]


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(rows, BATCH)):
        yield batch


async def _insert(database: Database, table: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    async with database.write() as session:
        await session.execute(insert(table), rows)
