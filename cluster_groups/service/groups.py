"""Use cases of cluster groups and their policies, of which every change is a new revision."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.check import check_name
from cluster_groups.check_policy import check_draft, check_text, policy_of
from cluster_groups.model.group import LEASE_TTL_S, ClusterGroup, Failback, Member, PolicyDraft, PolicyRevision
from cluster_groups.policy_changes import Change, policy_changes
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

_Content = ClusterGroup | PolicyRevision
_EVENTS = {"create": "CREATED", "edit": "EDITED", "revise": "POLICY_REVISED"}


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
    def __init__(self, clock: Clock, hints: Hints, users_of_group: UsersOf, *, lease_ttl_s: int = LEASE_TTL_S) -> None:
        self._clock = clock
        self._hints = hints
        self._users_of_group = users_of_group
        self._lease_ttl_s = lease_ttl_s

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

    async def changes(
        self, session: AsyncSession, ref: str, revisions: Sequence[PolicyRevision]
    ) -> dict[int, tuple[Change, ...]]:
        """By revision: what it changed of the one before it; the first changed nothing."""
        row = await store.find(session, ref)
        earlier = await store.revisions(session, row, [one.revision - 1 for one in revisions])
        return {one.revision: policy_changes(earlier.get(one.revision - 1, one), one) for one in revisions}

    async def drafted(
        self, session: AsyncSession, group: ClusterGroup, draft: PolicyDraft, *, inside: str
    ) -> ClusterGroup:
        """The group as it would be if this were saved. `inside` points at the draft in what was sent."""
        found = await self._problems(session, draft, group.members)
        raise_problems(replace(one, pointer=f"{inside}{one.pointer}") for one in found)
        new = replace(group, timezone=draft.timezone, members=draft.members, policy=policy_of(draft.policy))
        return replace(new, revised_at=self._clock.now()) if _is_revision(new, group, draft.comment) else group

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
        self._tell(session, actor, row, "create")
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
            change = Change(field="description", before=row.description, after=changes.description)
            row.description = changes.description
            row.version += 1
            self._tell(session, actor, row, "edit", changes=[asdict(change)])
        if (changes.timezone, changes.members, changes.policy) != (None, None, None):
            await self._revise(session, actor, row, current, changes.over(current), kept=current.members)
        return await self._group_of(session, row)

    async def put_policy(
        self, session: AsyncSession, actor: Actor, ref: str, draft: PolicyDraft, *, if_match: int | None
    ) -> PolicyRevision:
        """The present revision afterwards: see `_is_revision`."""
        row, current = await self._to_revise(session, actor, ref, if_match)
        return await self._revise(session, actor, row, current, draft, kept=current.members)

    async def restore(
        self, session: AsyncSession, actor: Actor, ref: str, number: int, *, comment: str, if_match: int | None
    ) -> PolicyRevision:
        """The content of an earlier revision as a new one, held to the rules of today."""
        row, current = await self._to_revise(session, actor, ref, if_match)
        old = await store.revision(session, row, number)
        policy = asdict(old.policy)
        draft = PolicyDraft(timezone=old.timezone, members=old.members, policy=policy, comment=comment)
        return await self._revise(session, actor, row, current, draft, kept=old.members)

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

    async def _to_revise(
        self, session: AsyncSession, actor: Actor, ref: str, if_match: int | None
    ) -> tuple[ClusterGroupRow, PolicyRevision]:
        """Locked, and at the revision that whoever changes it has seen."""
        actor.need(Role.OPERATOR)
        if if_match is None:
            raise RevisionRequired("IF_MATCH_REQUIRED")
        row = await store.find(session, ref, lock=True)
        current = await store.revision(session, row, row.revision)
        _need_revision(current, if_match)
        return row, current

    async def _revise(
        self,
        session: AsyncSession,
        actor: Actor,
        row: ClusterGroupRow,
        current: PolicyRevision,
        draft: PolicyDraft,
        *,
        kept: Sequence[Member],
    ) -> PolicyRevision:
        raise_problems(await self._problems(session, draft, kept))
        new = self._revision(draft, actor, current.revision + 1)
        if not _is_revision(new, current, new.comment):
            return current
        session.add(store.revision_row(row.id, new))
        row.revision = new.revision
        row.version += 1
        changes = [asdict(one) for one in policy_changes(current, new)]
        self._tell(session, actor, row, "revise", revision=new.revision, comment=new.comment, changes=changes)
        self._hints.send(session, QUEUE_LOOP, QUEUE_KEY)
        await session.flush()
        return new

    def _tell(self, session: AsyncSession, actor: Actor, row: ClusterGroupRow, action: str, **detail: Any) -> None:
        now = self._clock.now()
        record(session, row.id, _EVENTS[action], at=now, actor=actor.user, **detail)
        audit(session, action, ("cluster_group", row.name), at=now, actor=actor.user, **detail)

    async def _problems(self, session: AsyncSession, draft: PolicyDraft, kept: Sequence[Member] = ()) -> list[Problem]:
        """`kept` were members before: they may stay when their clusters are gone, which the decisions then tell."""
        found = check_draft(draft, lease_ttl_s=self._lease_ttl_s)
        names = [member.cluster for member in draft.members]
        known = await cluster_store.listed_names(session, names)
        return found + _unknown(names, known | {member.cluster for member in kept})

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


def _is_revision(new: _Content, current: _Content, comment: str) -> bool:
    """The same content again is none. With a comment it is, where a person takes back what was left for ill health."""
    takes_back = new.policy.failback is Failback.MANUAL and bool(comment)
    return takes_back or _content(new) != _content(current)


def _content(of: _Content) -> tuple[object, ...]:
    return of.timezone, of.members, of.policy


def _unknown(names: Sequence[str], known: set[str]) -> list[Problem]:
    return [
        problem("REFERENCE_NOT_FOUND", f"/members/{index}/cluster", kind="cluster", ref=name)
        for index, name in enumerate(names)
        if name not in known
    ]
