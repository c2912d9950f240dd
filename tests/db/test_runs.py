"""Runs as stored: submit, stop, reprioritise, queue places, pages; admission and attempts as rows."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cluster_groups.model.cluster import ClusterRef
from cluster_groups.model.demand import ClusterView
from cluster_groups.model.group import Member
from kernel.db import Database, guarded_update
from kernel.errors import Conflict, Denied, InvalidInput, NotFound
from kernel.loop import Hints
from kernel.paging import PageRequest
from rayjobs import run_store
from rayjobs.attempt_store import AttemptStore
from rayjobs.model.job import Job, RunMode
from rayjobs.model.run import AttemptState, End, EndClass, EndCode, RunState, submission_id
from rayjobs.queue_store import QueueStore
from rayjobs.run_report import events_of, report_one
from rayjobs.run_service import RunService
from rayjobs.run_store import RunFilter
from rayjobs.tables import AttemptRow, RunRow
from tests.builders.job_world import ANN, BOB, OPS, TickingClock, World, make_world
from tests.builders.targets import NOW, store_cluster, store_cluster_group


async def find_cluster(_session: object, _name: str) -> ClusterRef:
    return ClusterRef(id="clu_1", resource_package=None)


class Bench:
    """A world, the run service over it, and the hints it sends."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.database = world.database
        self.hinted: list[tuple[str, str]] = []
        hints = Hints()
        for topic in ("queue", "attempts", "runs"):
            hints.connect(topic, lambda key, topic=topic: self.hinted.append((topic, key)))  # type: ignore[misc]
        self.service = RunService(TickingClock(), hints, world.service, find_cluster)

    async def submit(self, job: Job, **options: int) -> str:
        async with self.database.write() as session:
            return (await self.service.run_job(session, ANN, job.id, **options)).id

    async def row(self, run_id: str) -> RunRow:
        async with self.database.read() as session:
            return await run_store.get_run(session, run_id)

    async def place(self, run_id: str, state: RunState = RunState.RUNNING) -> None:
        async with self.database.write() as session:
            row = await run_store.get_run(session, run_id)
            row.state, row.epoch, row.cluster_id, row.cluster = state, 1, "clu_1", "c1"
            session.add(
                AttemptRow(
                    id=submission_id(run_id, 1), run_id=run_id, epoch=1, cluster_id="clu_1", cluster="c1",
                    demand=row.demand, state=AttemptState.RUNNING, state_since=NOW, created_at=NOW,
                )
            )  # fmt: skip


class NoClusters:
    async def views(self, _session: object, _ids: object) -> list[ClusterView]:
        return []


@pytest.fixture
async def bench(database: Database) -> Bench:
    return Bench(await make_world(database))


class TestSubmit:
    async def test_the_run_is_pinned_to_the_revision_of_the_moment(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared())).job
        run_id = await bench.submit(job)
        await bench.world.edit(job.id, entrypoint="python other.py")
        row = await bench.row(run_id)
        assert (row.state, row.job_revision, row.cluster_id) == (RunState.SUBMITTED, 1, "clu_1")

    async def test_admission_is_woken_after_the_commit(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared())).job
        run_id = await bench.submit(job)
        assert bench.hinted == [("queue", "queue"), ("runs", run_id)]

    async def test_priority_and_wait_of_the_run_win_over_the_jobs(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.on_demand(priority=3, max_wait_s=60))).job
        row = await bench.row(await bench.submit(job, priority=9))
        assert (row.priority, row.max_wait_s) == (9, 60)

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"priority": 10}, "PRIORITY_OUT_OF_RANGE"),
            ({"max_wait_s": 0}, "MAX_WAIT_OUT_OF_RANGE"),
            ({"max_wait_s": 2**31}, "MAX_WAIT_OUT_OF_RANGE"),
        ],
    )
    async def test_bounds(self, bench: Bench, options: dict[str, int], code: str) -> None:
        job = (await bench.world.create(bench.world.on_demand())).job
        with pytest.raises(InvalidInput, match=code):
            await bench.submit(job, **options)

    async def test_priority_is_for_on_demand_only(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared())).job
        with pytest.raises(InvalidInput, match="FIELD_NOT_FOR_MODE"):
            await bench.submit(job, priority=5)

    async def test_anothers_job_needs_an_operator(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared())).job
        async with bench.database.write() as session:
            with pytest.raises(Denied, match="NOT_YOURS"):
                await bench.service.run_job(session, BOB, job.id)
            await bench.service.run_job(session, OPS, job.id)

    async def test_a_grant_withdrawn_since_the_job_was_saved(self, bench: Bench) -> None:
        async with bench.database.write() as session:
            await store_cluster(session, "dear", resource_package="other")
            await store_cluster_group(session, "g1", Member(cluster="dear"))
        shared = (await bench.world.create(bench.world.shared(cluster="dear"))).job
        spec = bench.world.shared(name="group", run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="g1")
        group = (await bench.world.create(spec)).job
        on_demand = (await bench.world.create(bench.world.on_demand(name="own"))).job
        poorer = replace(ANN, resource_packages=("third",))
        async with bench.database.write() as session:
            for job in (shared, group, on_demand):
                with pytest.raises(Denied, match="RESOURCE_PACKAGE_DENIED"):
                    await bench.service.run_job(session, poorer, job.id)

    async def test_a_group_takes_whoever_may_use_one_of_its_members(self, bench: Bench) -> None:
        async with bench.database.write() as session:
            await store_cluster(session, "dear", resource_package="other")
            await store_cluster(session, "ours", resource_package="third")
            await store_cluster_group(session, "g1", Member(cluster="dear"), Member(cluster="ours", order=1))
        spec = bench.world.shared(name="group", run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="g1")
        job = (await bench.world.create(spec)).job
        async with bench.database.write() as session:
            run = await bench.service.run_job(session, replace(ANN, resource_packages=("third",)), job.id)
        async with bench.database.read() as session:
            (waiting,) = await QueueStore().waiting_runs(session)
        assert (waiting.id, waiting.demand.packages) == (run.id, ("third",))

    async def test_where_an_attempt_went_wrong_is_known(self, bench: Bench) -> None:
        async with bench.database.write() as session:
            await store_cluster_group(session, "g1", Member(cluster="c1"))
        spec = bench.world.shared(name="group", run_mode=RunMode.CLUSTER_GROUP, cluster=None, cluster_group="g1")
        job = (await bench.world.create(spec)).job
        lost, failed, running = [await bench.submit(job) for _ in range(3)]
        for run_id in (lost, failed, running):
            await bench.place(run_id)
        async with bench.database.read() as session:
            load = await QueueStore().ledger(session)
            assert [held.cluster_group for held in load["clu_1"].held] == ["g1"] * 3
        async with bench.database.write() as session:
            for run_id, end_class, code in (
                (lost, EndClass.LOST, EndCode.HEAD_LOST),
                (failed, EndClass.USER, EndCode.EXIT_NONZERO),
            ):
                (await run_store.get_run(session, run_id)).state = RunState.WAITING
                attempt = await session.get_one(AttemptRow, submission_id(run_id, 1))
                attempt.end = run_store.end_to_json(End(end_class=end_class, code=code))
        async with bench.database.read() as session:
            tried = {run.id: run.tried for run in await QueueStore().waiting_runs(session)}
        assert tried == {lost: frozenset({"c1"}), failed: frozenset()}

    async def test_demand_of_an_on_demand_run_is_its_cluster_at_its_least(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.on_demand())).job
        row = await bench.row(await bench.submit(job))
        demand = run_store.demand_from_json(row.demand)
        assert (demand.resources.cpu, demand.resources.memory_gib) == (4, 8)


class TestStop:
    async def test_a_waiting_run_is_over_at_once(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        async with bench.database.write() as session:
            row = await bench.service.stop(session, ANN, run_id)
        assert (row.state, row.end and row.end["code"]) == (RunState.STOPPED, EndCode.BY_USER)

    async def test_a_placed_run_is_left_to_its_attempt(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        await bench.place(run_id)
        async with bench.database.write() as session:
            row = await bench.service.stop(session, ANN, run_id)
        assert (row.state, row.end, row.stop_code) == (RunState.STOPPING, None, EndCode.BY_USER)
        assert ("attempts", submission_id(run_id, 1)) in bench.hinted

    async def test_a_second_stop_changes_nothing(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        for _ in range(2):
            async with bench.database.write() as session:
                row = await bench.service.stop(session, ANN, run_id)
        async with bench.database.read() as session:
            types = [event.type for event in await events_of(session, run_id)]
        assert (row.version, types) == (2, ["SUBMITTED", "STOP_REQUESTED", "STOPPED"])

    async def test_somebody_elses_run(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        async with bench.database.write() as session:
            with pytest.raises(Denied):
                await bench.service.stop(session, BOB, run_id)

    async def test_taking_a_cluster_away_ends_what_is_placed_there(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        await bench.place(run_id)
        async with bench.database.write() as session:
            await bench.service.end_runs_on(session, "clu_1", OPS)
        row = await bench.row(run_id)
        assert (row.stop_code, row.stop_requested_by) == (EndCode.FORCED, OPS.user)


class TestQueue:
    async def test_priority_changes_only_while_waiting(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.on_demand())).job)
        async with bench.database.write() as session:
            assert (await bench.service.set_priority(session, ANN, run_id, 9)).priority == 9
        await bench.place(run_id)
        async with bench.database.write() as session:
            with pytest.raises(Conflict, match="RUN_NOT_WAITING"):
                await bench.service.set_priority(session, ANN, run_id, 1)

    async def test_the_ledger_counts_what_live_attempts_hold(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared())).job
        run_id = await bench.submit(job)
        await bench.place(run_id)
        async with bench.database.read() as session:
            load = (await QueueStore().ledger(session))["clu_1"]
        assert (load.drivers, load.starting) == (1, 0)

    async def test_an_attempt_that_is_over_may_still_need_its_cluster(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        await bench.place(run_id)
        attempt_id = submission_id(run_id, 1)
        seen = []
        for state in (AttemptState.RUNNING, AttemptState.COLLECTING, AttemptState.RELEASING, AttemptState.ENDED):
            async with bench.database.write() as session:
                (await session.get_one(AttemptRow, attempt_id)).state = state
            async with bench.database.read() as session:
                seen.append(await run_store.settling_on(session, "clu_1"))
        assert seen == [[], [attempt_id], [], []]


class TestPages:
    async def test_filters_and_cursor(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared(tags={"team": "视觉"}))).job
        other = (await bench.world.create(bench.world.on_demand(name="other"))).job
        mine = [await bench.submit(job) for _ in range(5)]
        await bench.submit(other)
        seen: list[str] = []
        cursor = None
        while True:
            request = PageRequest(limit=2, cursor=cursor, sort="created_at")
            async with bench.database.read() as session:
                page = await run_store.page_of_runs(session, RunFilter(equal={}, tag="team:视觉"), request)
            seen += [row.id for row in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == mine
        async with bench.database.read() as session:
            by_job = await run_store.page_of_runs(session, RunFilter(equal={}, job="other"), PageRequest())
            by_state = await run_store.page_of_runs(session, RunFilter(equal={}, states=["RUNNING"]), PageRequest())
        assert (len(by_job.items), len(by_state.items)) == (1, 0)

    async def test_unknown_run(self, bench: Bench) -> None:
        async with bench.database.read() as session:
            with pytest.raises(NotFound):
                await run_store.get_run(session, "run_x")


class TestReports:
    async def test_phases_of_a_running_run(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        await bench.place(run_id)
        async with bench.database.write() as session:
            row = await run_store.get_run(session, run_id)
            row.allocated_at = row.enqueued_at + timedelta(seconds=2)
            row.started_at = row.enqueued_at + timedelta(seconds=5)
        async with bench.database.read() as session:
            report = await report_one(session, await run_store.get_run(session, run_id), NOW)
        states = {phase.name.value: phase.state.value for phase in report.phases}
        assert states == {"queue": "done", "environment": "done", "running": "active", "release": "pending"}
        assert report.groups[0].running == 1

    async def test_the_attempts_view_has_what_its_next_step_depends_on(self, bench: Bench) -> None:
        job = (await bench.world.create(bench.world.shared(stop_grace_s=3))).job
        run_id = await bench.submit(job)
        await bench.place(run_id)
        store = AttemptStore(NoClusters())  # type: ignore[arg-type]  # all it asks the fleet for
        async with bench.database.read() as session:
            found = await store.load(session, [submission_id(run_id, 1), "run_x-a1"])
        (snapshot,) = found.values()
        view = snapshot.view
        assert (view.run_mode, view.stop_grace_s, view.cluster, view.epoch) == (RunMode.CLUSTER, 3, None, 1)
        assert view.cluster_is_gone

    async def test_a_stale_write_is_dropped(self, bench: Bench) -> None:
        run_id = await bench.submit((await bench.world.create(bench.world.shared())).job)
        async with bench.database.write() as session:
            assert await guarded_update(session, RunRow, run_id, 1, state=RunState.WAITING)
            assert not await guarded_update(session, RunRow, run_id, 1, state=RunState.STARTING)
        assert (await bench.row(run_id)).state == RunState.WAITING
