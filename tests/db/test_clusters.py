"""What people do with clusters, on both databases."""

import asyncio
from typing import Any

import pytest

from cluster_groups.model.cluster import ClusterState, NodeSpec, WorkerGroup
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import ClusterUse
from kernel.actor import Actor, Role
from kernel.clock import instant
from kernel.db import Database
from kernel.errors import Conflict, Denied, InvalidInput, MusterError, NotFound, StaleRevision, ValidationFailed
from kernel.paging import PageRequest
from kernel.reasons import Reason
from kernel.resources import Resources
from runtime_envs.volumes.model import Mount
from tests.builders.cluster_world import ADMIN, OPERATOR, SUBMITTER, ClusterWorld
from tests.builders.clusters import a_config, an_attached_config


@pytest.fixture
async def world(database: Database) -> ClusterWorld:
    return await ClusterWorld(database).with_default_pool()


async def refusal(doing: Any) -> MusterError:
    with pytest.raises(MusterError) as caught:
        await doing
    return caught.value


class TestCreate:
    async def test_fills_in_backend_and_place(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", a_config(labels={"zone": "a"}))
        assert cluster == await world.cluster("c1") == await world.cluster(cluster.id)
        assert (cluster.backend, cluster.resource_package, cluster.resource_group) == ("local", "default", "default")
        assert (cluster.state, cluster.revision, cluster.created_by) == (ClusterState.CREATED, 1, "ops")
        assert cluster.worker_groups == (WorkerGroup(name="w1", cpu=2, memory_gib=4),)
        assert cluster.health.status is HealthStatus.PENDING
        assert await world.events(cluster.id) == ["CREATED"]
        assert ("clusters", cluster.id) in world.hinted

    async def test_attached_is_running_from_the_start(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config(credential="tok"))
        assert cluster.state is ClusterState.RUNNING
        assert (cluster.backend, cluster.resource_group) == (None, None)

    async def test_with_autostart_starts(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", a_config(autostart=True))
        assert cluster.state is ClusterState.STARTING

    async def test_with_autostart_but_no_quota_stays(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", a_config(autostart=True, head=NodeSpec(cpu=1000)))
        assert cluster.state is ClusterState.CREATED
        assert await world.events(cluster.id) == ["CREATED", "AUTOSTART_REFUSED"]

    async def test_a_taken_name(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        error = await refusal(world.do("create", an_attached_config("c1")))
        assert (type(error), error.code, error.pointer) == (Conflict, "NAME_TAKEN", "/name")

    async def test_a_name_given_back_by_a_deletion(self, world: ClusterWorld) -> None:
        first = await world.do("create", a_config())
        await world.do("delete", "c1")
        await world.look(first.id)
        assert (await world.do("create", a_config())).id != first.id

    async def test_two_at_once_with_one_name(self, world: ClusterWorld) -> None:
        tries = [world.do("create", a_config()) for _ in range(4)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        codes = [one.code for one in results if isinstance(one, MusterError)]
        assert codes == ["NAME_TAKEN"] * 3

    @pytest.mark.parametrize(
        ("config", "code", "pointer"),
        [
            (a_config(backend="kuberay"), "BACKEND_NOT_AVAILABLE", "/backend"),
            (a_config(resource_group="none"), "REFERENCE_NOT_FOUND", "/resource_group"),
            (a_config(resource_package="none", resource_group="default"), "REFERENCE_NOT_FOUND", "/resource_package"),
            (a_config(resource_package="default"), "FIELD_REQUIRED", "/resource_group"),
            (
                a_config(resource_package="other", resource_group="default"),
                "RESOURCE_GROUP_NOT_IN_PACKAGE",
                "/resource_group",
            ),
            (a_config(volumes=(Mount(volume="data", mount_path="/d"),)), "REFERENCE_NOT_FOUND", "/volumes/0/volume"),
            (an_attached_config(credential="unknown"), "REFERENCE_NOT_FOUND", "/credential"),
            (a_config("Bad"), "INVALID_NAME", "/name"),
        ],
    )
    async def test_refuses(self, world: ClusterWorld, config: Any, code: str, pointer: str) -> None:
        await world.with_pool("other", "others", Resources(cpu=4, memory_gib=8))
        error = await refusal(world.do("create", config))
        assert (error.status, error.code, error.pointer) == (422, code, pointer)

    async def test_names_all_problems_at_once(self, world: ClusterWorld) -> None:
        with pytest.raises(ValidationFailed) as caught:
            await world.do("create", a_config("Bad", head=NodeSpec(cpu=0.5), resource_group="none"))
        assert {one.pointer for one in caught.value.problems} == {"/name", "/head/cpu", "/resource_group"}

    async def test_refuses_whom_it_is_not_for(self, world: ClusterWorld) -> None:
        assert (await refusal(world.do("create", a_config(), actor=SUBMITTER))).code == "ROLE_REQUIRED"
        bound = Actor(user="bo", role=Role.OPERATOR, resource_packages=("other",))
        error = await refusal(world.do("create", a_config(), actor=bound))
        assert (type(error), error.code) == (Denied, "RESOURCE_PACKAGE_DENIED")
        nobody = Actor(user="no", role=Role.OPERATOR, resource_packages=())
        assert (await refusal(world.do("create", a_config(), actor=nobody))).code == "NOT_ALLOW_LISTED"

    async def test_without_any_package(self, database: Database) -> None:
        error = await refusal(ClusterWorld(database).do("create", a_config()))
        assert (type(error), error.code) == (Conflict, "SERVICE_NOT_OPENED")


class TestEdit:
    async def test_is_a_new_revision(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        edited = await world.do("edit", "c1", {"max_runs": 3, "head": NodeSpec(cpu=2, memory_gib=2)}, if_match=1)
        assert (edited.revision, edited.max_runs, edited.head.cpu) == (2, 3, 2)
        assert await world.events(edited.id) == ["CREATED", "EDITED"]

    async def test_of_nothing_is_none(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        assert (await world.do("edit", "c1", {"name": "c1", "max_runs": None})).revision == 1

    async def test_for_another_revision(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        await world.do("edit", "c1", {"max_runs": 3}, actor=Actor(user="eve", role=Role.OPERATOR))
        error = await refusal(world.do("edit", "c1", {"max_runs": 4}, if_match=1))
        assert (type(error), error.code) == (StaleRevision, "REVISION_CONFLICT")
        expected = {"expected": 1, "revision": 2, "changed_by": "eve"}
        assert error.params == expected | {"changed_at": instant(world.clock.now())}

    async def test_while_it_runs(self, world: ClusterWorld) -> None:
        await world.running(a_config())
        assert (await refusal(world.do("edit", "c1", {"max_runs": 3}))).code == "CLUSTER_NOT_EDITABLE"

    async def test_of_what_stays(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        error = await refusal(world.do("edit", "c1", {"name": "c2", "backend": "kuberay"}))
        assert (type(error), error.code, error.params["fields"]) == (Conflict, "FIELD_IMMUTABLE", ["name", "backend"])

    async def test_is_checked_like_a_creation(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        error = await refusal(world.do("edit", "c1", {"worker_groups": ()}))
        assert (type(error), error.code) == (InvalidInput, "WORKER_GROUP_COUNT")

    async def test_attached_may_move_while_nothing_runs_there(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        await world.probe_once(cluster.id)
        assert (await world.cluster("a1")).health.status is HealthStatus.HEALTHY
        world.runs.on[cluster.id] = ["run_1"]
        move = {"address": "http://127.0.0.1:9999"}
        assert (await refusal(world.do("edit", "a1", move))).code == "CLUSTER_HAS_ACTIVE_RUNS"
        world.runs.on.clear()
        assert (await world.do("edit", "a1", move)).health.status is HealthStatus.PENDING
        await world.probe_once(cluster.id)
        assert world.probe.asked[-1].address == "http://127.0.0.1:9999"


class TestOpenToEverybody:
    """Clusters whose Job API answers without a token."""

    OPEN = an_attached_config(credential=None, allow_open=True)

    async def test_only_an_administrator_takes_one(self, world: ClusterWorld) -> None:
        assert (await refusal(world.do("create", self.OPEN))).code == "ROLE_REQUIRED"
        assert (await world.do("create", self.OPEN, actor=ADMIN)).allow_open

    async def test_only_an_administrator_makes_one_of_another(self, world: ClusterWorld) -> None:
        await world.do("create", an_attached_config())
        assert (await refusal(world.do("edit", "a1", {"allow_open": True}))).code == "ROLE_REQUIRED"
        assert (await world.do("edit", "a1", {"allow_open": True}, actor=ADMIN)).allow_open

    async def test_what_was_allowed_for_one_address_is_not_for_another(self, world: ClusterWorld) -> None:
        await world.do("create", self.OPEN, actor=ADMIN)
        assert (await world.do("edit", "a1", {"max_runs": 3})).max_runs == 3
        moved = {"address": "http://127.0.0.1:9999"}
        assert (await refusal(world.do("edit", "a1", moved))).code == "ROLE_REQUIRED"
        assert not (await world.do("edit", "a1", moved | {"allow_open": False})).allow_open

    async def test_one_that_opens_later_is_healthy_no_more(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        await world.probe_once(cluster.id)
        assert (await world.cluster("a1")).health.status is HealthStatus.HEALTHY
        world.probe.open.add("http://127.0.0.1:8265")
        for _ in range(5):  # the list of jobs is due at the third
            world.clock.pass_s(10)
            await world.probe_once(cluster.id)
        health = (await world.cluster("a1")).health
        assert health.status is HealthStatus.UNHEALTHY
        assert health.failure == Reason(code="JOB_API_OPEN")
        await world.do("edit", "a1", {"allow_open": True}, actor=ADMIN)
        await world.probe_once(cluster.id)
        assert (await world.cluster("a1")).health.status is HealthStatus.HEALTHY


class TestStart:
    async def test_again_changes_nothing(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        first = await world.do("start", "c1")
        assert (await world.do("start", "c1")) == first
        assert await world.events(first.id) == ["CREATED", "STARTING"]

    async def test_without_quota(self, world: ClusterWorld) -> None:
        await world.with_pool("small", "few", Resources(cpu=5, memory_gib=64))
        for name in ("c1", "c2"):
            await world.do("create", a_config(name, resource_group="few"))
        await world.do("start", "c1")
        error = await refusal(world.do("start", "c2"))
        short = {"cpu": {"needed": 3, "used": 3, "max": 5}}
        assert (type(error), error.code, error.params["short"]) == (Conflict, "QUOTA_INSUFFICIENT", short)

    async def test_two_at_once_never_share_the_last_of_the_quota(self, world: ClusterWorld) -> None:
        await world.with_pool("small", "few", Resources(cpu=5, memory_gib=64))
        for name in ("c1", "c2"):
            await world.do("create", a_config(name, resource_group="few"))
        async with world.database.write() as session:
            await world.clusters.start(session, OPERATOR, "c1")
            second = asyncio.create_task(world.do("start", "c2"))
            await asyncio.wait({second}, timeout=0.3)  # it has to wait for the first to be decided
        assert (await refusal(second)).code == "QUOTA_INSUFFICIENT"

    async def test_of_a_failed_one_counts_itself_once(self, world: ClusterWorld) -> None:
        await world.with_pool("small", "few", Resources(cpu=3, memory_gib=6))
        cluster = await world.running(a_config(resource_group="few"))
        world.backend.vanishes(cluster.id)
        await world.look(cluster.id)
        assert (await world.cluster("c1")).state is ClusterState.FAILED
        assert (await world.do("start", "c1")).state is ClusterState.STARTING

    async def test_of_an_attached_one(self, world: ClusterWorld) -> None:
        await world.do("create", an_attached_config())
        for verb in ("start", "stop"):
            assert (await refusal(world.do(verb, "a1"))).code == "CLUSTER_NOT_MANAGED"


class TestStopAndDelete:
    async def test_live_runs_refuse_both(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        world.runs.on[cluster.id] = ["run_1", "run_2"]
        for verb in ("stop", "delete"):
            error = await refusal(world.do(verb, "c1"))
            assert (error.code, error.params["runs"]) == ("CLUSTER_HAS_ACTIVE_RUNS", ["run_1", "run_2"])
        assert world.runs.told_to_end == []

    async def test_force_ends_the_runs(self, world: ClusterWorld) -> None:
        cluster = await world.running(a_config())
        world.runs.on[cluster.id] = ["run_1"]
        assert (await world.do("stop", "c1", force=True)).state is ClusterState.STOPPING
        assert world.runs.told_to_end == ["run_1"]

    async def test_of_one_that_does_not_run_changes_nothing(self, world: ClusterWorld) -> None:
        created = await world.do("create", a_config())
        assert (await world.do("stop", "c1")) == created

    async def test_nothing_follows_a_deletion(self, world: ClusterWorld) -> None:
        await world.running(a_config())
        await world.do("delete", "c1")
        assert (await world.do("delete", "c1")).state is ClusterState.DELETING
        for verb in ("start", "stop"):
            assert (await refusal(world.do(verb, "c1"))).code == "CLUSTER_BUSY"

    async def test_attached_goes_at_once(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        await world.do("delete", "a1")
        assert type(await refusal(world.cluster(cluster.id))) is NotFound
        assert await world.events(cluster.id) == ["CREATED", "DELETING", "DELETED"]

    async def test_honours_its_revision(self, world: ClusterWorld) -> None:
        await world.do("create", a_config())
        error = await refusal(world.do("delete", "c1", if_match=2))
        assert (type(error), error.code) == (StaleRevision, "REVISION_CONFLICT")
        await world.do("delete", "c1", if_match=1)

    async def test_attached_stays_reachable_until_its_logs_are_copied(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        world.runs.settling_on[cluster.id] = ["run_1-a1"]
        assert (await world.do("delete", "a1")).state is ClusterState.DELETING
        assert await world.look(cluster.id) is not None  # soon again, not with the next relist
        assert await world.endpoints.endpoint(cluster.id) is not None
        world.runs.settling_on.clear()
        await world.look(cluster.id)
        assert type(await refusal(world.cluster("a1"))) is NotFound

    async def test_attached_stays_reachable_until_its_ended_runs_are_gone(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        world.runs.on[cluster.id] = ["run_1"]
        assert (await world.do("delete", "a1", force=True)).state is ClusterState.DELETING
        await world.look(cluster.id)
        assert (await world.cluster("a1")).state is ClusterState.DELETING
        assert await world.endpoints.endpoint(cluster.id) is not None
        world.runs.on.clear()
        await world.look(cluster.id)
        assert type(await refusal(world.cluster("a1"))) is NotFound


class TestCordon:
    async def test_and_uncordon(self, world: ClusterWorld) -> None:
        cluster = await world.do("create", an_attached_config())
        assert (await world.do("cordon", "a1")).cordoned
        assert (await world.do("cordon", "a1")).cordoned
        assert not (await world.do("uncordon", "a1")).cordoned
        assert await world.events(cluster.id) == ["CREATED", "CORDONED", "UNCORDONED"]


class TestOnDemand:
    async def make(self, world: ClusterWorld, run_id: str = "run_01k000000000000000000000aa") -> Any:
        async with world.database.write() as session:
            return await world.clusters.create_for_run(session, a_config("-"), run_id=run_id, created_by="ann")

    async def test_starts_at_once_and_is_not_listed(self, world: ClusterWorld) -> None:
        cluster = await self.make(world)
        assert (cluster.name, cluster.state) == ("od-01k000000000000000000000aa", ClusterState.STARTING)
        async with world.database.read() as session:
            assert (await world.clusters.page(session, {}, PageRequest())).items == []
            (view,) = await world.clusters.views(session)
            assert view.on_demand
            assert [view] == await world.clusters.views(session, [cluster.id])
            amount = Resources(cpu=3, memory_gib=6)
            use = ClusterUse(cluster=cluster.name, run=cluster.on_demand_run, amount=amount, is_starting=True)
            assert await world.clusters.usage(session) == {"default": (use,)}

    async def test_never_goes_beyond_the_quota(self, world: ClusterWorld) -> None:
        await world.do("create", a_config(head=NodeSpec(cpu=12, memory_gib=2)))
        await world.do("start", "c1")
        assert (await refusal(self.make(world))).code == "QUOTA_INSUFFICIENT"
        async with world.database.read() as session:
            assert len(await world.clusters.views(session)) == 1

    async def test_is_nobody_elses(self, world: ClusterWorld) -> None:
        cluster = await self.make(world)
        for verb in ("start", "stop", "delete", "cordon"):
            error = await refusal(world.do(verb, cluster.name))
            assert (error.code, error.params["run"]) == ("CLUSTER_OF_RUN", "run_01k000000000000000000000aa")

    async def test_released_it_goes_whatever_is_on_it(self, world: ClusterWorld) -> None:
        cluster = await self.make(world)
        world.runs.on[cluster.id] = ["run_1"]
        await world.look(cluster.id)
        for _ in range(2):
            async with world.database.write() as session:
                await world.clusters.release(session, cluster.id)
        await world.look(cluster.id)
        async with world.database.read() as session:
            assert await world.clusters.views(session, [cluster.id]) == []
        assert await world.events(cluster.id) == ["CREATED", "NODES", "DELETING", "DELETED"]
        await self.make(world)  # the next attempt of the run may use the name


class TestLists:
    async def test_pages_and_filters(self, world: ClusterWorld) -> None:
        for name in ("c1", "c2", "c3"):
            await world.do("create", a_config(name))
        await world.do("start", "c2")
        async with world.database.read() as session:
            first = await world.clusters.page(session, {}, PageRequest(limit=2, sort="name"))
            rest = await world.clusters.page(session, {}, PageRequest(limit=2, sort="name", cursor=first.next_cursor))
            started = await world.clusters.page(session, {"state": "STARTING", "kind": None}, PageRequest())
        assert [one.name for one in [*first.items, *rest.items]] == ["c1", "c2", "c3"]
        assert [one.name for one in started.items] == ["c2"]


class TestAutostart:
    async def test_starts_what_is_down(self, world: ClusterWorld) -> None:
        await world.do("create", a_config("no"))
        await world.do("create", a_config("yes", autostart=True))
        await world.do("stop", "yes")
        await world.look((await world.cluster("yes")).id)
        assert (await world.cluster("yes")).state is ClusterState.STOPPED
        async with world.database.write() as session:
            await world.clusters.autostart(session)
        assert (await world.cluster("yes")).state is ClusterState.STARTING
        assert (await world.cluster("no")).state is ClusterState.CREATED
