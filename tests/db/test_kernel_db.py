"""Units of work, guarded writes and times, the same on both databases."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.db import Database, Superseded, after_commit, asked_once, guarded_update, update_last
from kernel.errors import Unavailable
from kernel.events import AuditRow, EventRow, audit, record
from rayjobs.tables import JobRow

NOON = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


def job(number: int = 0) -> JobRow:
    return JobRow(
        id=f"job_{number}", name=f"job {number}", origin="api", run_mode="cluster", created_at=NOON, created_by="ann"
    )


async def names(database: Database) -> list[str]:
    async with database.read() as session:
        return list(await session.scalars(select(JobRow.name).order_by(JobRow.name)))


async def fail_after(database: Database, work: Callable[[AsyncSession], None]) -> None:
    async with database.write() as session:
        work(session)
        await session.flush()
        raise ZeroDivisionError


async def rename(database: Database, *changes: tuple[str, int | None, str]) -> None:
    """Key, version and new name of each."""
    async with database.write() as session:
        for key, version, name in changes:
            update_last(session, JobRow, key, version, name=name)


class TestWrite:
    async def test_commits_what_ends_well(self, database: Database) -> None:
        async with database.write() as session:
            session.add(job())
        assert await names(database) == ["job 0"]

    async def test_leaves_nothing_of_what_fails(self, database: Database) -> None:
        with pytest.raises(ZeroDivisionError):
            await fail_after(database, lambda session: session.add(job()))
        assert await names(database) == []

    async def test_many_writers_all_get_their_turn(self, database: Database) -> None:
        async def write(number: int) -> None:
            async with database.write() as session:
                session.add(job(number))

        await asyncio.gather(*(write(number) for number in range(30)))
        assert len(await names(database)) == 30

    async def test_a_reader_sees_no_half_of_it(self, database: Database) -> None:
        async with database.write() as session:
            session.add(job())
            await session.flush()
            assert await names(database) == []


class TestAfterCommit:
    async def test_comes_when_it_is_durable(self, database: Database) -> None:
        seen: list[list[str]] = []
        async with database.write() as session:
            session.add(job())
            after_commit(session, lambda: seen.append(["called"]))
            assert seen == []
        assert seen == [["called"]]

    async def test_never_comes_after_a_rollback(self, database: Database) -> None:
        seen: list[str] = []
        with pytest.raises(ZeroDivisionError):
            await fail_after(database, lambda session: after_commit(session, lambda: seen.append("called")))
        assert seen == []


class TestGuardedUpdate:
    async def test_one_of_two_who_have_seen_the_same_wins(self, database: Database) -> None:
        async with database.write() as session:
            session.add(job())

        async def rename(name: str) -> bool:
            async with database.write() as session:
                return await guarded_update(session, JobRow, "job_0", 1, name=name)

        won = await asyncio.gather(rename("a"), rename("b"))
        assert sorted(won) == [False, True]
        assert await names(database) == ["a" if won[0] else "b"]
        async with database.read() as session:
            assert await session.scalar(select(JobRow.version)) == 2

    async def test_nothing_there(self, database: Database) -> None:
        async with database.write() as session:
            assert await guarded_update(session, JobRow, "job_9", 1, name="x") is False


class TestUpdateLast:
    async def test_writes_all_of_a_unit_at_its_end(self, database: Database) -> None:
        async with database.write() as session:
            session.add_all([job(0), job(1)])
        async with database.write() as session:
            update_last(session, JobRow, "job_0", 1, name="a")
            update_last(session, JobRow, "job_1", 1, name="b", deleted_at=NOON)
            assert sorted(await session.scalars(select(JobRow.name))) == ["job 0", "job 1"]
        async with database.read() as session:
            rows = await session.execute(select(JobRow.name, JobRow.version, JobRow.deleted_at).order_by(JobRow.id))
            assert [tuple(row) for row in rows] == [("a", 2, None), ("b", 2, NOON)]

    @pytest.mark.parametrize(("key", "version"), [("job_0", 2), ("job_9", 1)])
    async def test_writes_nothing_where_one_has_changed(self, database: Database, key: str, version: int) -> None:
        async with database.write() as session:
            session.add_all([job(0), job(1)])
        with pytest.raises(Superseded):
            await rename(database, (key, version, "a"), ("job_1", 1, "b"))
        assert await names(database) == ["job 0", "job 1"]

    async def test_twice_the_same_row_is_one_too_many(self, database: Database) -> None:
        async with database.write() as session:
            session.add(job())
        with pytest.raises(Superseded):
            await rename(database, ("job_0", 1, "a"), ("job_0", 1, "b"))
        assert await names(database) == ["job 0"]

    async def test_one_of_two_who_have_seen_the_same_wins(self, database: Database) -> None:
        async with database.write() as session:
            session.add_all([job(0), job(1)])

        async def one(*order: str) -> None:
            await rename(database, *((key, 1, f"{key} of {order[0]}") for key in order))

        results = await asyncio.gather(one("job_0", "job_1"), one("job_1", "job_0"), return_exceptions=True)
        assert sorted(map(repr, results)) == ["None", "Superseded()"]
        won = "job_0" if results[0] is None else "job_1"
        assert await names(database) == [f"job_0 of {won}", f"job_1 of {won}"]

    async def test_without_a_version_it_does_not_matter_whether_it_is_there(self, database: Database) -> None:
        async with database.write() as session:
            session.add(job())
        await rename(database, ("job_0", None, "a"), ("job_9", None, "b"))
        assert await names(database) == ["a"]

    @pytest.mark.parametrize("version", [1, None])
    async def test_two_large_ones_do_not_wait_for_each_other(
        self, database: Database, monkeypatch: pytest.MonkeyPatch, version: int | None
    ) -> None:
        """Whichever way round they come to what is too much for one statement."""
        monkeypatch.setattr("kernel.db._KEYS_AT_ONCE", 1)
        keys = [f"job_{number}" for number in range(100, 200)]
        async with database.write() as session:
            session.add_all([job(number) for number in range(100, 200)])
        both = [rename(database, *((key, version, f"{way} {key}") for key in keys[::way])) for way in (1, -1)]
        results = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(map(repr, results)) == ["None", "None" if version is None else "Superseded()"]
        assert len({name.split()[0] for name in await names(database)}) == 1

    async def test_who_shares_a_transaction_answers_for_himself_alone(self, database: Database) -> None:
        async with database.write() as session:
            session.add_all([job(0), job(1)])

        async def rename(key: str, version: int) -> None:
            async def unit(session: AsyncSession) -> None:
                update_last(session, JobRow, key, version, name=f"new {key}")

            await database.write_together(unit)

        results = await asyncio.gather(
            rename("job_0", 1), rename("job_1", 7), rename("job_0", 1), return_exceptions=True
        )
        assert [type(one) for one in results] == [type(None), Superseded, Superseded]
        assert await names(database) == ["job 1", "new job_0"]


class TestTimes:
    @pytest.mark.parametrize("offset_h", [0, 8, -5])
    async def test_come_back_as_the_same_instant_in_utc(self, database: Database, offset_h: int) -> None:
        local = NOON.astimezone(timezone(timedelta(hours=offset_h)))
        async with database.write() as session:
            row = job()
            row.created_at = local
            session.add(row)
        async with database.read() as session:
            stored = await session.scalar(select(JobRow.created_at))
        assert stored == NOON
        assert stored is not None
        assert stored.utcoffset() == timedelta(0)

    async def test_are_compared_as_instants(self, database: Database) -> None:
        async with database.write() as session:
            session.add(job())
        tokyo = timezone(timedelta(hours=9))
        async with database.read() as session:
            later = select(JobRow.id).where(JobRow.created_at < (NOON + timedelta(seconds=1)).astimezone(tokyo))
            earlier = select(JobRow.id).where(JobRow.created_at < (NOON - timedelta(seconds=1)).astimezone(tokyo))
            assert (await session.scalar(later), await session.scalar(earlier)) == ("job_0", None)


async def test_errors_do_not_tell_the_values_of_a_statement(database: Database) -> None:
    first, second = job(1), job(2)
    first.name = second.name = "a secret"
    with pytest.raises(IntegrityError) as caught:
        await fail_after(database, lambda session: session.add_all([first, second]))
    assert "INSERT INTO jobs" in str(caught.value)
    assert "a secret" not in str(caught.value)


async def test_events_and_audit_go_with_their_change(database: Database) -> None:
    async with database.write() as session:
        record(session, "job_0", "CREATED", at=NOON, actor="ann", revision=1)
        audit(session, "create", ("job", "job 0"), at=NOON, actor="ann", revision=1)
    async with database.read() as session:
        event, entry = await session.scalar(select(EventRow)), await session.scalar(select(AuditRow))
    assert event is not None
    assert (event.type, event.actor, event.params) == ("CREATED", "ann", {"revision": 1})
    assert entry is not None
    assert (entry.action, entry.target_type, entry.target, entry.detail) == ("create", "job", "job 0", {"revision": 1})


async def test_sqlite_is_durable_and_checks_its_references(database: Database) -> None:
    if database.dialect != "sqlite":
        return
    for open_session in (database.read, database.write):
        async with open_session() as session:
            pragmas = ("journal_mode", "synchronous", "foreign_keys")
            values = [(await session.execute(text(f"PRAGMA {name}"))).scalar_one() for name in pragmas]
        assert values == ["wal", 2, 1]


async def test_rows_can_be_counted_again_and_again(database: Database) -> None:
    for number in range(2):
        async with database.write() as session:
            session.add(job(number))
        await database.analyze()
        assert len(await names(database)) == number + 1


async def test_those_who_share_a_transaction_ask_once(database: Database) -> None:
    asked: list[int] = []

    async def answer() -> int:
        asked.append(1)
        return len(asked)

    async def unit(session: AsyncSession) -> int:
        return await asked_once(session, "how many", answer)

    assert await asyncio.gather(*(database.write_together(unit) for _ in range(5))) == [1] * 5
    assert await database.write_together(unit) == 2  # a later one asks again


async def test_a_database_that_does_not_answer() -> None:
    database = Database("postgresql://muster@127.0.0.1:1/none")
    with pytest.raises(Unavailable, match="DATABASE_UNREACHABLE"):
        await database.ping()
    await database.close()
