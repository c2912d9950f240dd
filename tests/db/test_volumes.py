"""Volumes on both databases: what is stored, who needs them, and where jobs and clusters may mount them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import ClusterKind, ClusterState
from cluster_groups.store import clusters as cluster_store
from kernel.actor import Actor
from kernel.db import Database
from kernel.errors import Conflict, InvalidInput, NotFound, Problem, ValidationFailed
from kernel.paging import PageRequest
from rayjobs import job_store, run_store
from rayjobs.job_store import JobFilter
from rayjobs.model.job import JobSpec, Origin, RunMode
from rayjobs.model.run import RunState
from rayjobs.tables import RunRow
from runtime_envs.credentials import Credentials, CredentialType, NewCredential
from runtime_envs.volumes import store
from runtime_envs.volumes.check import VolumeRules
from runtime_envs.volumes.model import Mount, NewVolume, Volume, VolumeType
from runtime_envs.volumes.service import Volumes
from tests.builders.cluster_world import ClusterWorld
from tests.builders.clusters import a_config, an_attached_config
from tests.builders.job_world import OPS, TickingClock, World, make_world
from tests.builders.targets import store_cluster, store_cluster_group

DATA = NewVolume(name="data", type=VolumeType.NFS, source={"server": "nfs.example", "path": "/export"})
BUCKET = NewVolume(
    name="store", type=VolumeType.COS, source={"bucket": "a-1250000000", "region": "r"}, credential="key"
)
CLAIM = NewVolume(name="claim", type=VolumeType.PVC, source={"claim_name": "shared"})


def at(path: str, volume: str = "data", **fields: Any) -> Mount:
    return Mount(volume=volume, mount_path=path, **fields)


@pytest.fixture
def volumes(database: Database) -> Volumes:
    async def users(session: AsyncSession, name: str) -> list[str]:
        return [*await job_store.users_of_volume(session, name), *await cluster_store.of_volume(session, name)]

    return Volumes(database, TickingClock(), credentials=None, rules=VolumeRules(), users=users)  # type: ignore[arg-type]  # none of these has any


@pytest.fixture
async def world(database: Database, volumes: Volumes) -> World:
    for new in (DATA, CLAIM):
        await create(database, volumes, new)
    return await make_world(database)


async def create(database: Database, volumes: Volumes, new: NewVolume = DATA, actor: Actor = OPS) -> Volume:
    async with database.write() as session:
        return await volumes.create(session, actor, new)


async def delete(database: Database, volumes: Volumes, ref: str = "data") -> None:
    async with database.write() as session:
        await volumes.delete(session, OPS, ref)


def codes(problems: Sequence[Problem]) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in problems]


async def refusals(doing: Any) -> list[tuple[str, str | None]]:
    with pytest.raises(InvalidInput) as caught:
        await doing
    error = caught.value
    return codes(error.problems) if isinstance(error, ValidationFailed) else [(error.code, error.pointer)]


class TestStored:
    async def test_as_it_was_made(self, database: Database, volumes: Volumes) -> None:
        made = await create(database, volumes)
        assert (made.source, made.created_by) == (DATA.source, "ops")
        async with database.read() as session:
            assert await volumes.get(session, "data") == await volumes.get(session, made.id) == made
            assert (await volumes.page(session, PageRequest())).items == [made]
            assert (await volumes.page(session, PageRequest(), VolumeType.PVC)).items == []
        assert await volumes.named(["data", "none", "no\0ne"]) == {"data": made}
        assert await volumes.named([]) == {}

    async def test_two_who_take_one_name(self, database: Database, volumes: Volumes) -> None:
        done = await asyncio.gather(*(create(database, volumes) for _ in range(3)), return_exceptions=True)
        assert sorted(type(one).__name__ for one in done) == ["Conflict", "Conflict", "Volume"]

    async def test_what_is_gone(self, database: Database, volumes: Volumes) -> None:
        await create(database, volumes)
        await delete(database, volumes)
        with pytest.raises(NotFound):
            await delete(database, volumes)
        await create(database, volumes)


class TestInUse:
    async def users(self, world: World, volumes: Volumes) -> list[str]:
        """By what a try to delete it says; empty: it was deleted."""
        (done,) = await asyncio.gather(delete(world.database, volumes), return_exceptions=True)
        return list(done.params["users"]) if isinstance(done, Conflict) else []

    async def test_by_a_job(self, world: World, volumes: Volumes) -> None:
        await world.create(world.shared(mounts=(at("/mnt/muster/a"),)))
        await world.create(world.shared("other", mounts=(at("/mnt/muster/a", "data"),)))
        assert await self.users(world, volumes) == ["other", "train"]
        await world.edit("train", mounts=())
        await world.delete("other")
        assert await self.users(world, volumes) == []

    async def test_by_a_run_of_an_earlier_revision(self, world: World, volumes: Volumes) -> None:
        saved = await world.create(world.shared(mounts=(at("/mnt/muster/a"),)))
        run_id = await world.run(saved.job)
        await world.edit("train", mounts=())
        assert await self.users(world, volumes) == ["train"]
        async with world.database.write() as session:
            (await run_store.get_run(session, run_id, lock=True)).state = RunState.SUCCEEDED
        assert await self.users(world, volumes) == []

    async def test_not_by_what_the_ray_endpoint_has_run(self, world: World, volumes: Volumes) -> None:
        """Its hidden job stays as long as the run is shown."""
        saved = await world.create(world.shared(mounts=(at("/mnt/muster/a"),)), origin=Origin.RAY_JOBS)
        run_id = await world.run(saved.job)
        assert await self.users(world, volumes) == [saved.job.id]
        async with world.database.write() as session:
            (await run_store.get_run(session, run_id, lock=True)).state = RunState.SUCCEEDED
        assert await self.users(world, volumes) == []

    async def test_by_a_cluster(self, world: World, volumes: Volumes) -> None:
        async with world.database.write() as session:
            await store_cluster(session, "lab", volumes=(at("/mnt/muster/a"),))
            await store_cluster(session, "gone", ClusterState.DELETED, volumes=(at("/mnt/muster/a"),))
        assert await self.users(world, volumes) == ["lab"]

    async def test_not_by_what_only_has_its_name_somewhere(self, world: World, volumes: Volumes) -> None:
        other = (at("/data", "claim", sub_path="data"),)
        async with world.database.write() as session:
            await store_cluster(session, "pods", kind=ClusterKind.ATTACHED, volumes=other)
        await world.create(world.shared(mounts=other, cluster="pods"))
        assert await self.users(world, volumes) == []


class TestJobs:
    @pytest.fixture
    async def world(self, world: World) -> World:
        async with world.database.write() as session:
            has = (at("/data"), at("/claim", "claim", sub_path="part"))
            await store_cluster(session, "pods", kind=ClusterKind.ATTACHED, volumes=has)
            await store_cluster_group(session, "g")
        return world

    @pytest.mark.parametrize(
        ("mount", "refused"),
        [
            (at("/mnt/muster/data"), None),
            (at("/data"), ("MOUNT_PATH_NOT_AVAILABLE", "/mounts/0/mount_path")),
            (at("/mnt/muster/c", "claim"), ("MOUNT_NOT_AVAILABLE_ON_CLUSTER", "/mounts/0/volume")),
            (at("/mnt/muster/x", "nope"), ("REFERENCE_NOT_FOUND", "/mounts/0/volume")),
            (at("/etc"), ("MOUNT_PATH_RESERVED", "/mounts/0/mount_path")),
        ],
    )
    @pytest.mark.parametrize("mode", [RunMode.CLUSTER, RunMode.ON_DEMAND])
    async def test_on_clusters_that_muster_makes(
        self, world: World, mode: RunMode, mount: Mount, refused: tuple[str, str] | None
    ) -> None:
        spec = world.shared(mounts=(mount,)) if mode is RunMode.CLUSTER else world.on_demand(mounts=(mount,))
        await self.saves(world, spec, refused)

    @pytest.mark.parametrize(
        ("mount", "refused"),
        [
            (at("/data"), None),
            (at("/claim", "claim", sub_path="part"), None),
            (at("/mnt/muster/data"), ("MOUNT_PATH_NOT_AVAILABLE", "/mounts/0/mount_path")),
            (at("/claim", "claim"), ("MOUNT_NOT_AVAILABLE_ON_CLUSTER", "/mounts/0/volume")),
            (at("/data", read_only=True), ("MOUNT_NOT_READ_ONLY", "/mounts/0/read_only")),
        ],
    )
    async def test_on_clusters_of_others(self, world: World, mount: Mount, refused: tuple[str, str] | None) -> None:
        await self.saves(world, world.shared(cluster="pods", mounts=(mount,)), refused)

    async def test_members_of_a_group_are_looked_at_when_a_run_is_placed(self, world: World) -> None:
        spec = JobSpec(name="train", run_mode=RunMode.CLUSTER_GROUP, cluster_group="g", entrypoint="x")
        spec = replace(spec, package=world.package, mounts=(at("/data"), at("/b", "claim")))
        run_id = await world.run((await world.create(spec)).job)
        async with world.database.read() as session:
            row = await session.get_one(RunRow, run_id)
        wanted = run_store.demand_from_json(row.demand).mounts
        assert [(one.mount, one.type) for one in wanted] == [
            (at("/data"), VolumeType.NFS),
            (at("/b", "claim"), VolumeType.PVC),
        ]

    async def saves(self, world: World, spec: JobSpec, refused: tuple[str, str] | None) -> None:
        if refused is not None:
            assert await refusals(world.create(spec)) == [refused]
            return
        saved = await world.create(spec)
        assert (await world.get("train")).spec.mounts == saved.job.spec.mounts == spec.mounts


class TestClusters:
    @pytest.fixture
    async def world(self, database: Database, volumes: Volumes) -> ClusterWorld:
        for new in (DATA, CLAIM):
            await create(database, volumes, new)
        return await ClusterWorld(database).with_default_pool()

    @pytest.mark.parametrize(
        ("mount", "refused"),
        [
            (at("/mnt/muster/data"), None),
            (at("/data"), ("MOUNT_PATH_NOT_AVAILABLE", "/volumes/0/mount_path")),
            (at("/mnt/muster/c", "claim"), ("MOUNT_NOT_AVAILABLE_ON_CLUSTER", "/volumes/0/volume")),
            (at("/proc"), ("MOUNT_PATH_RESERVED", "/volumes/0/mount_path")),
            (at("/mnt/muster/x", "nope"), ("REFERENCE_NOT_FOUND", "/volumes/0/volume")),
        ],
    )
    async def test_that_muster_makes(self, world: ClusterWorld, mount: Mount, refused: tuple[str, str] | None) -> None:
        making = world.do("create", a_config(volumes=(mount,)))
        if refused is not None:
            assert await refusals(making) == [refused]
            return
        assert (await making).volumes == (await world.cluster("c1")).volumes == (mount,)

    async def test_of_others_are_registered_with_whatever_they_have(self, world: ClusterWorld) -> None:
        has = (at("/data"), at("/claim", "claim"))
        cluster = await world.do("create", an_attached_config(volumes=has))
        assert cluster_store.view_of(cluster).mounts == has
        reserved = [("MOUNT_PATH_RESERVED", "/volumes/0/mount_path")]
        assert await refusals(world.do("edit", cluster.name, {"volumes": (at("/etc"),)})) == reserved
        edited = await world.do("edit", cluster.name, {"volumes": (at("/data", read_only=True),)})
        assert edited.volumes == (at("/data", read_only=True),)


async def test_a_job_that_is_saved_while_its_volume_is_deleted(world: World, volumes: Volumes) -> None:
    """One of the two is refused, whoever comes first."""
    saving = world.create(world.shared(mounts=(at("/mnt/muster/a"),)))
    done = await asyncio.gather(saving, delete(world.database, volumes), return_exceptions=True)
    assert sum(isinstance(one, Exception) for one in done) == 1
    async with world.database.read() as session:
        assert bool(await store.named(session, ["data"])) is bool(await world.names(JobFilter()))


async def test_a_volume_that_is_made_while_its_credential_is_deleted(database: Database) -> None:
    """On SQLite writers queue anyway; on PostgreSQL the credential is held until the volume is there."""
    credentials = Credentials(database, TickingClock(), [Fernet.generate_key()], store.of_credential)
    volumes = Volumes(database, TickingClock(), credentials, VolumeRules(), job_store.users_of_volume)
    secret = NewCredential(name="key", type=CredentialType.COS, data={"secret_id": "i", "secret_key": "k"})
    async with database.write() as session:
        await credentials.create(session, OPS, secret)
    made, go_on = asyncio.Event(), asyncio.Event()

    async def make() -> None:
        async with database.write() as session:
            await volumes.create(session, OPS, BUCKET)
            made.set()
            await go_on.wait()

    async def remove() -> None:
        async with database.write() as session:
            await credentials.delete(session, OPS, "key")

    making = asyncio.create_task(make())
    await made.wait()
    removing = asyncio.create_task(remove())
    done, _ = await asyncio.wait([removing], timeout=0.3)
    assert not done
    go_on.set()
    await making
    with pytest.raises(Conflict, match="CREDENTIAL_IN_USE"):
        await removing
