"""The loops of clusters step by step: the real reconcilers and loop on real databases, over a backend we command."""

from dataclasses import replace

import pytest

from cluster_groups.backends.base import ClusterBackend
from cluster_groups.decide.lifecycle import SETTLE_S
from cluster_groups.model.cluster import Cluster, ClusterState, Endpoint, Observed, Phase, ProbeResult
from cluster_groups.model.health import HealthStatus
from cluster_groups.reconcile import orphans
from cluster_groups.reconcile.clusters import MOVING_S, RUNNING_S, START_TIMEOUT_S
from kernel.db import Database
from kernel.errors import Unavailable
from kernel.reasons import Reason
from kernel.resources import Resources
from tests.builders.cluster_world import ClusterWorld
from tests.builders.clusters import a_config, a_node, an_attached_config

BROKEN = Observed(phase=Phase.BROKEN, reason=Reason(code="HEAD_LOST", params={"exit_code": 1}))


@pytest.fixture
async def world(database: Database) -> ClusterWorld:
    return await ClusterWorld(database).with_default_pool()


async def starting(world: ClusterWorld) -> Cluster:
    cluster: Cluster = await world.do("create", a_config())
    await world.do("start", "c1")
    await world.look(cluster.id)
    return cluster


class TestStarting:
    async def test_shows_its_progress_and_comes_up(self, world: ClusterWorld) -> None:
        cluster = await starting(world)
        seen = await world.cluster("c1")
        assert (seen.state, seen.nodes_up, seen.nodes_wanted) == (ClusterState.STARTING, 0, 2)
        world.backend.becomes(cluster.id, Observed(phase=Phase.STARTING, nodes_up=1, nodes_wanted=2))
        await world.look(cluster.id)
        assert (await world.cluster("c1")).nodes_up == 1
        world.backend.comes_up(cluster.id)
        world.hinted.clear()
        assert await world.look(cluster.id) == 0
        assert (await world.cluster("c1")).state is ClusterState.RUNNING
        assert {("health", cluster.id), ("queue", "queue")} <= set(world.hinted)
        assert cluster.id in world.runs.woken
        assert await world.events(cluster.id) == ["CREATED", "STARTING", "NODES", "NODES", "RUNNING"]

    async def test_writes_nothing_while_nothing_changes(self, world: ClusterWorld) -> None:
        cluster = await starting(world)
        before = await world.events(cluster.id)
        world.runs.woken.clear()
        for _ in range(3):
            await world.look(cluster.id)
        assert world.backend.starts == [cluster.id] * 4
        assert (await world.events(cluster.id), world.runs.woken) == (before, [])

    async def test_broken_fails_with_the_reason_and_is_cleaned_up(self, world: ClusterWorld) -> None:
        cluster = await starting(world)
        world.backend.becomes(cluster.id, BROKEN)
        await world.look(cluster.id)
        failed = await world.cluster("c1")
        assert (failed.state, failed.state_reason) == (ClusterState.FAILED, BROKEN.reason)
        await world.look(cluster.id)
        assert world.backend.seen == {}
        assert (await world.cluster("c1")).state_reason == BROKEN.reason
        assert await world.look(cluster.id) is None

    async def test_after_a_failure_begins_with_what_is_left(self, world: ClusterWorld) -> None:
        cluster = await starting(world)
        world.backend.becomes(cluster.id, BROKEN)
        await world.look(cluster.id)
        world.backend.slow_stop = True
        starts = len(world.backend.starts)
        await world.do("start", "c1")
        await world.look(cluster.id)
        cleaning = await world.cluster("c1")
        assert (cleaning.state, cleaning.state_reason) == (ClusterState.STARTING, Reason(code="CLEANING_UP"))
        await world.look(cluster.id)
        assert len(world.backend.starts) == starts
        await world.look(cluster.id)
        assert len(world.backend.starts) == starts + 1
        world.backend.comes_up(cluster.id)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.RUNNING

    async def test_takes_only_so_long(self, world: ClusterWorld) -> None:
        cluster = await starting(world)
        world.clock.pass_s(START_TIMEOUT_S)
        await world.look(cluster.id)
        failed = await world.cluster("c1")
        assert failed.state is ClusterState.FAILED
        assert failed.state_reason is not None
        assert failed.state_reason.code == "CLUSTER_START_TIMEOUT"

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (Unavailable("TEMP_FOLDER_NOT_PRIVATE", path="/x"), "TEMP_FOLDER_NOT_PRIVATE"),
            (OSError(28, "full"), "BACKEND_FAILED"),
        ],
    )
    async def test_shows_why_the_backend_refuses(
        self, world: ClusterWorld, error: Unavailable | OSError, code: str
    ) -> None:
        world.backend.refusal = error
        await starting(world)
        refused = await world.cluster("c1")
        assert refused.state is ClusterState.STARTING
        assert refused.state_reason is not None
        assert refused.state_reason.code == code
        world.backend.refusal = None
        await world.look(refused.id)
        assert (await world.cluster("c1")).state_reason is None

    async def test_for_a_run_has_the_runs_patience(self, world: ClusterWorld) -> None:
        async with world.database.write() as session:
            cluster = await world.clusters.create_for_run(session, a_config("-"), run_id="run_1", created_by="ann")
        world.clock.pass_s(START_TIMEOUT_S * 2)
        await world.look(cluster.id)
        assert (await world.cluster(cluster.id)).state is ClusterState.STARTING


class TestRunning:
    async def test_a_lost_worker_is_replaced(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        assert await world.look(cluster.id) == RUNNING_S
        starts = len(world.backend.starts)
        world.backend.becomes(cluster.id, Observed(phase=Phase.UP, nodes_up=1, nodes_wanted=2))
        await world.look(cluster.id)
        assert len(world.backend.starts) == starts + 1
        assert (await world.cluster("c1")).nodes_up == 1

    async def test_a_lost_head_fails_it(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        world.backend.becomes(cluster.id, BROKEN)
        world.runs.woken.clear()
        await world.look(cluster.id)
        failed = await world.cluster("c1")
        assert (failed.state, failed.state_reason, failed.nodes) == (ClusterState.FAILED, BROKEN.reason, ())
        assert world.runs.woken == [cluster.id]

    async def test_what_fell_is_absent_once_it_was_taken_down(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        world.backend.becomes(cluster.id, replace(BROKEN, nodes_up=1, nodes_wanted=2))
        absent = []
        for _ in range(2):
            await world.look(cluster.id)
            async with world.database.read() as session:
                absent += [view.is_absent for view in await world.clusters.views(session)]
        assert absent == [False, True]
        assert (await world.cluster("c1")).state is ClusterState.FAILED

    @pytest.mark.parametrize(("autostart", "then"), [(False, ClusterState.FAILED), (True, ClusterState.STARTING)])
    async def test_vanished(self, world: ClusterWorld, *, autostart: bool, then: ClusterState) -> None:
        cluster = await world.running(a_config(autostart=autostart))
        world.backend.vanishes(cluster.id)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.FAILED
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is then

    async def test_idle_it_stops(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config(idle_stop_s=100))
        world.clock.pass_s(99)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.RUNNING
        world.runs.ended_at[cluster.id] = world.clock.now()
        world.clock.pass_s(99)
        world.runs.on[cluster.id] = ["run_1"]
        await world.look(cluster.id)
        world.runs.on.clear()
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.RUNNING
        world.clock.pass_s(1)
        world.runs.settling_on[cluster.id] = ["run_1-a1"]
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.RUNNING
        world.runs.settling_on.clear()
        await world.look(cluster.id)
        await world.look(cluster.id)
        stopped = await world.cluster("c1")
        assert stopped.state is ClusterState.STOPPED
        assert stopped.state_reason is not None
        assert stopped.state_reason.code == "IDLE_STOPPED"

    async def test_an_edit_meanwhile_wins(self, world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster = await world.running(a_config())
        world.backend.becomes(cluster.id, BROKEN)
        observe = world.backend.observe

        async def observe_late(cluster_id: str) -> Observed:
            await world.do("stop", "c1")
            return await observe(cluster_id)

        monkeypatch.setattr(world.backend, "observe", observe_late)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.STOPPING


class TestStopping:
    async def test_until_nothing_is_left(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        world.backend.slow_stop = True
        await world.do("stop", "c1")
        assert await world.look(cluster.id) is not None
        assert (await world.cluster("c1")).state is ClusterState.STOPPING
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.STOPPED
        assert await world.look(cluster.id) is None

    async def test_a_run_that_slipped_in_holds_it_back(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.do("stop", "c1")
        world.runs.on[cluster.id] = ["run_1"]
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.STOPPING
        assert world.backend.stops == []
        await world.do("stop", "c1", force=True)
        assert world.runs.told_to_end == ["run_1"]
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.STOPPED

    @pytest.mark.parametrize("force", [False, True])
    async def test_the_logs_of_its_runs_are_copied_first(self, world: ClusterWorld, *, force: bool) -> None:
        cluster = await world.running(a_config())
        await world.do("stop", "c1", force=force)
        world.runs.settling_on[cluster.id] = ["run_1-a1"]
        assert await world.look(cluster.id) == MOVING_S
        assert world.backend.stops == []
        assert await world.endpoints.endpoint(cluster.id) is not None
        world.runs.settling_on.clear()
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.STOPPED

    async def test_a_log_that_cannot_be_had_delays_it_but_for_a_while(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.do("stop", "c1")
        world.runs.settling_on[cluster.id] = ["run_1-a1"]
        world.clock.pass_s(SETTLE_S)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.STOPPED

    async def test_a_cluster_for_one_run_does_not_wait_for_that_run(self, world: ClusterWorld) -> None:
        async with world.database.write() as session:
            cluster = await world.clusters.create_for_run(session, a_config("-"), run_id="run_1", created_by="ann")
        await world.look(cluster.id)
        world.runs.settling_on[cluster.id] = ["run_1-a1"]
        async with world.database.write() as session:
            await world.clusters.release(session, cluster.id)
        await world.look(cluster.id)
        assert world.backend.seen == {}

    async def test_each_life_has_its_own_endpoint(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        first = await world.endpoints.endpoint(cluster.id)
        await world.do("stop", "c1")
        await world.look(cluster.id)
        assert await world.endpoints.endpoint(cluster.id) is None
        await world.do("start", "c1")
        await world.look(cluster.id)
        world.backend.comes_up(cluster.id)
        await world.look(cluster.id)
        assert await world.endpoints.endpoint(cluster.id) not in {None, first}


class TestHealth:
    async def test_a_pass_makes_it_healthy_and_shows_its_nodes(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        nodes = (a_node(is_head=True), a_node())
        passed = ProbeResult(at=world.clock.now(), nodes=nodes, ray_version="2.60.0", python_version="3.11.7")
        world.probe.results[f"http://127.0.0.1:8265/{cluster.id}"] = passed
        world.hinted.clear()
        assert await world.probe_once(cluster.id) == 10
        seen = await world.cluster("c1")
        assert (seen.health.status, seen.nodes, seen.ray_version) == (HealthStatus.HEALTHY, nodes, "2.60.0")
        assert ("queue", "queue") in world.hinted
        async with world.database.read() as session:
            (view,) = await world.clusters.views(session)
        assert (view.health, view.total.cpu) == (HealthStatus.HEALTHY, 4)
        assert view.maximum == Resources(cpu=2, memory_gib=6)  # the head offers its memory only

    async def test_writes_only_what_changed(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        world.hinted.clear()
        for _ in range(5):
            world.clock.pass_s(10)
            await world.probe_once(cluster.id)
        assert world.hinted == []
        assert (await world.events(cluster.id)).count("HEALTH") == 1

    async def test_three_misses_make_it_unhealthy(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        missed = ProbeResult(at=world.clock.now(), failure=Reason(code="NO_ANSWER"))
        world.probe.results[f"http://127.0.0.1:8265/{cluster.id}"] = missed
        verdicts = []
        for _ in range(3):
            world.clock.pass_s(10)
            await world.probe_once(cluster.id)
            verdicts.append((await world.cluster("c1")).health.status)
        assert verdicts == [HealthStatus.HEALTHY, HealthStatus.HEALTHY, HealthStatus.UNHEALTHY]

    async def test_a_restarted_service_goes_on_from_the_row(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        world.clock.pass_s(3600)
        world.health_loop = world.new_health_loop()
        since = (await world.cluster("c1")).health.since
        await world.probe_once(cluster.id)
        health = (await world.cluster("c1")).health
        assert (health.status, health.since) == (HealthStatus.HEALTHY, since)

    async def test_without_news_it_is_unknown(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        world.endpoints.forget(cluster.id)
        world.backend.becomes(cluster.id, Observed(phase=Phase.UP, nodes_up=2, nodes_wanted=2))
        world.clock.pass_s(40)
        await world.probe_once(cluster.id)
        assert (await world.cluster("c1")).health.status is HealthStatus.UNKNOWN

    async def test_a_verdict_that_was_not_stored_is_sought_again_at_once(
        self, world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster = await world.running(a_config())
        probe = world.probe.probe

        async def probe_slowly(endpoint: Endpoint, **what: bool) -> ProbeResult:
            await world.do("cordon", "c1")
            return await probe(endpoint, **what)

        monkeypatch.setattr(world.probe, "probe", probe_slowly)
        assert await world.probe_once(cluster.id) == 0
        assert (await world.cluster("c1")).health.status is HealthStatus.PENDING
        assert await world.probe_once(cluster.id) == 10
        assert (await world.cluster("c1")).health.status is HealthStatus.HEALTHY

    async def test_the_jobs_are_listed_each_30_s(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        counts = []
        for _ in range(7):
            await world.probe_once(cluster.id)
            counts.append(len(world.probe.listed))
            world.clock.pass_s(10)
        assert counts == [1, 1, 1, 2, 2, 2, 3]

    async def test_runs_that_cannot_be_sent_make_it_unhealthy(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        for attempt in ("run_1-a1", "run_2-a1", "run_3-a1"):
            world.submits.note(cluster.id, attempt, "HTTP 500")
        world.clock.pass_s(10)
        await world.probe_once(cluster.id)
        world.clock.pass_s(10)
        await world.probe_once(cluster.id)
        async with world.database.read() as session:
            (view,) = await world.clusters.views(session)
        assert view.health is HealthStatus.UNHEALTHY
        assert view.health_failure is not None
        assert view.health_failure.code == "SUBMITS_FAIL"

    async def test_runs_that_could_not_be_sent_say_nothing_of_its_next_life(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        for attempt in ("run_1-a1", "run_2-a1", "run_3-a1"):
            world.submits.note(cluster.id, attempt, "HTTP 500")
        await self._restart(world, cluster.id)
        await world.probe_once(cluster.id)
        assert (await world.cluster("c1")).health.status is HealthStatus.HEALTHY

    async def test_stopped_by_people_again_and_again_it_does_not_flap(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        for _ in range(5):
            await world.probe_once(cluster.id)
            assert (await world.cluster("c1")).health.status is HealthStatus.HEALTHY
            await self._restart(world, cluster.id)

    async def test_a_head_that_died_comes_back_as_one_that_was_ill(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config(autostart=True))
        await world.probe_once(cluster.id)
        world.backend.vanishes(cluster.id)
        for state in (ClusterState.FAILED, ClusterState.STARTING, ClusterState.STARTING):
            await world.look(cluster.id)
            assert (await world.cluster("c1")).state is state
            await world.probe_once(cluster.id)
        world.backend.comes_up(cluster.id)
        await world.look(cluster.id)
        world.clock.pass_s(1)
        await world.probe_once(cluster.id)
        async with world.database.read() as session:
            (view,) = await world.clusters.views(session)
        assert (view.health, view.recovered_at) == (HealthStatus.HEALTHY, world.clock.now())

    async def _restart(self, world: ClusterWorld, cluster_id: str) -> None:
        for verb in ("stop", "start"):
            await world.do(verb, "c1")
            await world.look(cluster_id)
            await world.probe_once(cluster_id)
        world.backend.comes_up(cluster_id)
        await world.look(cluster_id)
        assert (await world.cluster("c1")).health.status is HealthStatus.PENDING

    async def test_an_edit_begins_anew(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        await world.probe_once(cluster.id)
        world.clock.pass_s(3600)
        edited = await world.do("edit", "a1", {"max_runs": 3})
        assert (edited.health.status, edited.health.since) == (HealthStatus.PENDING, world.clock.now())

    async def test_a_new_life_begins_pending(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        await world.probe_once(cluster.id)
        await world.do("stop", "c1")
        await world.look(cluster.id)
        await world.probe_once(cluster.id)
        await world.do("start", "c1")
        await world.look(cluster.id)
        world.backend.comes_up(cluster.id)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).health.status is HealthStatus.PENDING
        await world.probe_once(cluster.id)
        assert (await world.cluster("c1")).health.status is HealthStatus.HEALTHY


class TestEndpoints:
    async def test_of_an_attached_cluster_carries_its_token(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config(address="http://127.0.0.1:8265/", credential="tok"))
        assert await world.endpoints.endpoint(cluster.id) == Endpoint(address="http://127.0.0.1:8265", token="s3cret")

    async def test_without_its_token_there_is_none(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config(credential="tok"))
        del world.credentials.secrets["tok"]
        assert await world.endpoints.endpoint(cluster.id) is None

    async def test_asks_once(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        first = await world.endpoints.endpoint(cluster.id)
        world.backend.vanishes(cluster.id)
        assert await world.endpoints.endpoint(cluster.id) == first
        world.endpoints.forget(cluster.id)
        assert await world.endpoints.endpoint(cluster.id) is None


class TestOrphans:
    async def test_only_what_nobody_knows_ends(self, world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(orphans, "PAUSE_S", 0.001)
        cluster = await world.running(a_config())
        world.backend.slow_stop = True
        world.backend.comes_up("clu_unknown")
        backends: dict[str, ClusterBackend] = {"local": world.backend}
        assert await orphans.end_orphans(world.database, backends) == ["clu_unknown"]
        assert list(world.backend.seen) == [cluster.id]
