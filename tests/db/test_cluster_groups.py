"""Cluster groups and the revisions of their policies, on both databases."""

from dataclasses import asdict, replace
from datetime import date
from typing import Any

import pytest

from cluster_groups.model.group import (
    ClusterGroup,
    Effect,
    Failback,
    Member,
    Policy,
    PolicyDraft,
    PolicyRevision,
    Preset,
    Rank,
    Window,
)
from cluster_groups.service.groups import GroupChanges
from kernel.actor import Actor
from kernel.db import Database
from kernel.errors import Conflict, MusterError, NotFound, RevisionRequired, StaleRevision
from kernel.paging import PageRequest
from tests.builders.cluster_world import OPERATOR, SUBMITTER, ClusterWorld
from tests.builders.clusters import a_config

TWO = PolicyDraft(members=(Member(cluster="c1"), Member(cluster="c2", order=1)))


@pytest.fixture
async def world(database: Database) -> ClusterWorld:
    world = await ClusterWorld(database).with_default_pool()
    for name in ("c1", "c2"):
        await world.do("create", a_config(name))
    return world


async def create(world: ClusterWorld, draft: PolicyDraft = TWO, actor: Actor = OPERATOR) -> ClusterGroup:
    async with world.database.write() as session:
        return await world.groups.create(session, actor, "g1", "both", draft)


async def put(world: ClusterWorld, draft: PolicyDraft, if_match: int | None) -> PolicyRevision:
    async with world.database.write() as session:
        return await world.groups.put_policy(session, OPERATOR, "g1", draft, if_match=if_match)


async def edit(world: ClusterWorld, changes: GroupChanges, if_match: int | None = None) -> ClusterGroup:
    async with world.database.write() as session:
        return await world.groups.edit(session, OPERATOR, "g1", changes, if_match=if_match)


async def get(world: ClusterWorld) -> ClusterGroup:
    async with world.database.read() as session:
        return await world.groups.get(session, "g1")


async def refusal(doing: Any) -> MusterError:
    with pytest.raises(MusterError) as caught:
        await doing
    return caught.value


class TestCreate:
    async def test_fills_the_policy(self, world: ClusterWorld) -> None:
        group = await create(world)
        assert group == await get(world)
        assert (group.revision, group.timezone, group.members, group.policy) == (1, "UTC", TWO.members, Policy())

    async def test_a_taken_name(self, world: ClusterWorld) -> None:
        await create(world)
        assert (await refusal(create(world))).code == "NAME_TAKEN"

    async def test_an_empty_group_is_one(self, world: ClusterWorld) -> None:
        assert (await create(world, PolicyDraft())).members == ()

    async def test_refuses_members_it_does_not_know(self, world: ClusterWorld) -> None:
        async with world.database.write() as session:
            own = await world.clusters.create_for_run(session, a_config("-"), run_id="run_1", created_by="ann")
        for name in ("c9", own.name):
            error = await refusal(create(world, PolicyDraft(members=(Member(cluster="c1"), Member(cluster=name)))))
            assert (error.status, error.code, error.pointer) == (422, "REFERENCE_NOT_FOUND", "/members/1/cluster")

    async def test_is_for_operators(self, world: ClusterWorld) -> None:
        assert (await refusal(create(world, actor=SUBMITTER))).code == "ROLE_REQUIRED"


class TestPolicy:
    async def test_every_change_is_a_revision(self, world: ClusterWorld) -> None:
        await create(world)
        draft = PolicyDraft(
            timezone="Asia/Shanghai", members=TWO.members[:1], policy={"max_wait_s": 60}, comment="less"
        )
        revised = await put(world, draft, 1)
        assert (revised.revision, revised.policy.max_wait_s, revised.created_by) == (2, 60, "ops")
        group = await get(world)
        assert (group.revision, group.timezone, group.members) == (2, "Asia/Shanghai", TWO.members[:1])
        assert ("queue", "queue") in world.hinted
        async with world.database.read() as session:
            history = await world.groups.page_of_revisions(session, "g1", PageRequest(sort="-revision"))
            assert [one.revision for one in history.items] == [2, 1]
            assert (await world.groups.revision(session, "g1", 1)).members == TWO.members
            assert await world.groups.revision(session, "g1") == revised
            assert type(await refusal(world.groups.revision(session, "g1", 3))) is NotFound

    async def test_comes_back_as_it_was_saved(self, world: ClusterWorld) -> None:
        night = Window(
            days=(5, 6), start="22:00", end="06:00", timezone="America/New_York",
            date_from=date(2026, 1, 1), date_to=None, effect=Effect.CLOSED,
        )  # fmt: skip
        members = (Member(cluster="c1", weight=7, tier=3, windows=(night,), max_running=2),)
        made = await create(world, PolicyDraft(members=members, policy={"preset": "off_peak", "failback": "manual"}))
        assert (await get(world)).members == made.members == members
        assert made.policy == Policy(
            preset=Preset.OFF_PEAK, rank=Rank.LEAST_LOADED, spill_after_s=0, failback=Failback.MANUAL
        )
        assert (await get(world)).policy == made.policy
        same = PolicyDraft(members=members, policy=asdict(made.policy))
        assert (await put(world, same, 1)).revision == 1

    async def test_the_same_content_is_none(self, world: ClusterWorld) -> None:
        await create(world)
        same = PolicyDraft(members=TWO.members, policy={"preset": "failover", "lost_timeout_s": 900}, comment="again")
        assert (await put(world, same, 1)).revision == 1
        assert (await get(world)).revision == 1

    async def test_needs_the_revision_it_was_made_for(self, world: ClusterWorld) -> None:
        await create(world)
        error = await refusal(put(world, PolicyDraft(), None))
        assert (type(error), error.code) == (RevisionRequired, "IF_MATCH_REQUIRED")
        await put(world, PolicyDraft(), 1)
        error = await refusal(put(world, TWO, 1))
        assert (type(error), error.code) == (StaleRevision, "REVISION_CONFLICT")
        assert error.params["changed_by"] == "ops"


class TestMembersWhoseClusterIsGone:
    async def test_they_may_stay_and_come_back_and_no_others_may_come(self, world: ClusterWorld) -> None:
        await create(world)
        await put(world, replace(TWO, members=TWO.members[:1]), 1)
        for name in ("c1", "c2"):
            cluster = await world.do("delete", name)
            await world.look(cluster.id)
        members = (replace(TWO.members[0], cordoned=True),)
        assert (await put(world, replace(TWO, members=members), 2)).members == members
        assert (await edit(world, GroupChanges(members=TWO.members[:1]))).members == TWO.members[:1]
        error = await refusal(put(world, TWO, 4))
        assert (error.code, error.pointer) == ("REFERENCE_NOT_FOUND", "/members/1/cluster")
        async with world.database.write() as session:
            restored = await world.groups.restore(session, OPERATOR, "g1", 1, comment="", if_match=4)
            drafted = await world.groups.drafted(session, await world.groups.get(session, "g1"), TWO, inside="/policy")
        assert restored.members == drafted.members == TWO.members


class TestEdit:
    async def test_the_description_alone_is_no_revision(self, world: ClusterWorld) -> None:
        await create(world)
        edited = await edit(world, GroupChanges(description="new"))
        assert (edited.description, edited.revision) == ("new", 1)

    async def test_of_members_leaves_the_rest(self, world: ClusterWorld) -> None:
        await create(world, PolicyDraft(timezone="Asia/Shanghai", policy={"max_wait_s": 60}))
        edited = await edit(world, GroupChanges(members=TWO.members), if_match=1)
        assert (edited.revision, edited.timezone, edited.policy.max_wait_s) == (2, "Asia/Shanghai", 60)
        assert edited.members == TWO.members
        assert (await refusal(edit(world, GroupChanges(members=()), if_match=1))).code == "REVISION_CONFLICT"


class TestFind:
    async def test_pages_and_by_name(self, world: ClusterWorld) -> None:
        group = await create(world)
        async with world.database.read() as session:
            assert (await world.groups.page(session, {"name": None}, PageRequest())).items == [group]
            assert await world.groups.by_name(session) == {"g1": group}


class TestDelete:
    async def test_honours_its_revision(self, world: ClusterWorld) -> None:
        await create(world)
        async with world.database.write() as session:
            error = await refusal(world.groups.delete(session, OPERATOR, "g1", if_match=2))
        assert (type(error), error.code) == (StaleRevision, "REVISION_CONFLICT")
        async with world.database.write() as session:
            await world.groups.delete(session, OPERATOR, "g1", if_match=1)

    async def test_with_its_history(self, world: ClusterWorld) -> None:
        await create(world)
        await put(world, PolicyDraft(), 1)
        async with world.database.write() as session:
            await world.groups.delete(session, OPERATOR, "g1")
        assert type(await refusal(get(world))) is NotFound
        assert (await create(world)).revision == 1

    async def test_not_while_it_is_used(self, world: ClusterWorld) -> None:
        await create(world)
        world.users["g1"] = ["train"]
        async with world.database.write() as session:
            error = await refusal(world.groups.delete(session, OPERATOR, "g1"))
        assert (type(error), error.code, error.params["used_by"]) == (Conflict, "CLUSTER_GROUP_IN_USE", ["train"])
