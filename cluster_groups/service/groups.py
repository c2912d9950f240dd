"""Use cases of cluster groups and their policies, of which every change is a new revision."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.check import check_name
from cluster_groups.check_policy import check_draft, check_text, policy_of
from cluster_groups.model.group import ClusterGroup, Member, PolicyDraft, PolicyRevision
from cluster_groups.service.base import QUEUE_KEY, QUEUE_LOOP, UsersOf, store_named
from cluster_groups.store import clusters as cluster_store
from cluster_groups.store import groups as store
from cluster_groups.tables import ClusterGroupRow
from kernel.actor import Actor, Role
from kernel.clock import Clock, instant
from kernel.errors import Conflict, Problem, RevisionRequired, StaleRevision, problem, raise_problems
from kernel.events import audit, record
from kernel.ids import new_id
from kernel.loop import Hints
from kernel.paging import Page, PageRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChanges:
    """Of an edit: what is None stays as it is. `policy` replaces the whole policy."""

    description: str | None = None
    timezone: str | None = None
    members: tuple[Member, ...] | None = None
    policy: Mapping[str, Any] | None = None

    def over(self, current: PolicyRevision) -> PolicyDraft:
        return PolicyDraft(
            timezone=current.timezone if self.timezone is None else self.timezone,
            members=current.members if self.members is None else self.members,
            policy=asdict(current.policy) if self.policy is None else self.policy,
        )


class ClusterGroups:
    def __init__(self, clock: Clock, hints: Hints, users_of_group: UsersOf) -> None:
        self._clock = clock
        self._hints = hints
        self._users_of_group = users_of_group

    async def get(self, session: AsyncSession, ref: str) -> ClusterGroup:
        return await self._group_of(session, await store.find(session, ref))

    async def by_name(self, session: AsyncSession) -> dict[str, ClusterGroup]:
        return {group.name: group for group in await store.every(session)}

    async def page(
        self, session: AsyncSession, filters: Mapping[str, str | None], request: PageRequest
    ) -> Page[ClusterGroup]:
        return await store.page(session, filters, request)

    async def revision(self, session: AsyncSession, ref: str, number: int | None = None) -> PolicyRevision:
        """The present one unless a number is given."""
        row = await store.find(session, ref)
        return await store.revision(session, row, row.revision if number is None else number)

    async def page_of_revisions(self, session: AsyncSession, ref: str, request: PageRequest) -> Page[PolicyRevision]:
        return await store.page_of_revisions(session, await store.find(session, ref), request)

    async def create(
        self, session: AsyncSession, actor: Actor, name: str, description: str, draft: PolicyDraft
    ) -> ClusterGroup:
        actor.need(Role.OPERATOR)
        found = [*check_name(name), *check_text("/description", description), *await self._problems(session, draft)]
        raise_problems(found)
        now = self._clock.now()
        row = ClusterGroupRow(
            id=new_id("grp"),
            created_at=now,
            created_by=actor.user,
            version=1,
            name=name,
            description=description,
            revision=1,
        )
        await store_named(session, row, "cluster_group", name)
        session.add(store.revision_row(row.id, self._revision(draft, actor, 1)))
        record(session, row.id, "CREATED", at=now, actor=actor.user)
        audit(session, "create", ("cluster_group", name), at=now, actor=actor.user)
        await session.flush()
        return await self._group_of(session, row)

    async def edit(
        self, session: AsyncSession, actor: Actor, ref: str, changes: GroupChanges, *, if_match: int | None = None
    ) -> ClusterGroup:
        actor.need(Role.OPERATOR)
        row = await store.find(session, ref, lock=True)
        current = await store.revision(session, row, row.revision)
        _need_revision(current, if_match)
        if changes.description is not None and changes.description != row.description:
            raise_problems(check_text("/description", changes.description))
            row.description = changes.description
            row.version += 1
            audit(session, "edit", ("cluster_group", row.name), at=self._clock.now(), actor=actor.user)
        if (changes.timezone, changes.members, changes.policy) != (None, None, None):
            await self._revise(session, actor, row, current, changes.over(current))
        return await self._group_of(session, row)

    async def put_policy(
        self, session: AsyncSession, actor: Actor, ref: str, draft: PolicyDraft, *, if_match: int | None
    ) -> PolicyRevision:
        """The present revision afterwards: the same one when the content is the same."""
        actor.need(Role.OPERATOR)
        if if_match is None:
            raise RevisionRequired("IF_MATCH_REQUIRED")
        row = await store.find(session, ref, lock=True)
        current = await store.revision(session, row, row.revision)
        _need_revision(current, if_match)
        return await self._revise(session, actor, row, current, draft)

    async def delete(self, session: AsyncSession, actor: Actor, ref: str, *, if_match: int | None = None) -> None:
        actor.need(Role.OPERATOR)
        row = await store.find(session, ref, lock=True)
        _need_revision(await store.revision(session, row, row.revision), if_match)
        users = await self._users_of_group(session, row.name)
        if users:
            raise Conflict("CLUSTER_GROUP_IN_USE", cluster_group=row.name, used_by=list(users))
        await session.delete(row)
        audit(session, "delete", ("cluster_group", row.name), at=self._clock.now(), actor=actor.user)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)

    async def _revise(
        self, session: AsyncSession, actor: Actor, row: ClusterGroupRow, current: PolicyRevision, draft: PolicyDraft
    ) -> PolicyRevision:
        raise_problems(await self._problems(session, draft))
        new = self._revision(draft, actor, current.revision + 1)
        if _content(new) == _content(current):
            return current
        session.add(store.revision_row(row.id, new))
        row.revision = new.revision
        row.version += 1
        params = {"revision": new.revision, "comment": new.comment}
        record(session, row.id, "POLICY_REVISED", at=new.created_at, actor=actor.user, **params)
        audit(session, "revise", ("cluster_group", row.name), at=new.created_at, actor=actor.user, **params)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        await session.flush()
        return new

    async def _problems(self, session: AsyncSession, draft: PolicyDraft) -> list[Problem]:
        found = check_draft(draft)
        names = [member.cluster for member in draft.members]
        known = await cluster_store.listed_names(session, names)
        return found + _unknown(names, known)

    def _revision(self, draft: PolicyDraft, actor: Actor, number: int) -> PolicyRevision:
        return PolicyRevision(
            revision=number,
            timezone=draft.timezone,
            members=draft.members,
            policy=policy_of(draft.policy),
            comment=draft.comment,
            created_at=self._clock.now(),
            created_by=actor.user,
        )

    async def _group_of(self, session: AsyncSession, row: ClusterGroupRow) -> ClusterGroup:
        return store.group_of(row, await store.revision(session, row, row.revision))


def _need_revision(current: PolicyRevision, if_match: int | None) -> None:
    if if_match is None or if_match == current.revision:
        return
    raise StaleRevision(
        "REVISION_CONFLICT",
        expected=if_match,
        revision=current.revision,
        changed_by=current.created_by,
        changed_at=instant(current.created_at),
    )


def _content(revision: PolicyRevision) -> tuple[object, ...]:
    return revision.timezone, revision.members, revision.policy


def _unknown(names: Sequence[str], known: set[str]) -> list[Problem]:
    return [
        problem("REFERENCE_NOT_FOUND", f"/members/{index}/cluster", kind="cluster", ref=name)
        for index, name in enumerate(names)
        if name not in known
    ]
