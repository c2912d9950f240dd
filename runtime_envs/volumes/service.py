"""Use cases of volumes: make, find, delete. They are never edited: delete and create."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor, Role
from kernel.clock import Clock
from kernel.db import Database
from kernel.errors import Conflict, problem, raise_problems
from kernel.events import audit
from kernel.ids import new_id
from kernel.paging import Page, PageRequest
from runtime_envs.credentials import Credentials, CredentialType
from runtime_envs.volumes import store
from runtime_envs.volumes.check import VolumeRules, check_volume, with_defaults
from runtime_envs.volumes.model import NewVolume, Volume, VolumeType

UsersOf = Callable[[AsyncSession, str], Awaitable[Sequence[str]]]


class Volumes:
    def __init__(
        self, database: Database, clock: Clock, credentials: Credentials, rules: VolumeRules, users: UsersOf
    ) -> None:
        """`users(session, name)` names the jobs and clusters that need a volume."""
        self._database = database
        self._clock = clock
        self._credentials = credentials
        self._rules = rules
        self._users = users

    async def create(self, session: AsyncSession, actor: Actor, new: NewVolume) -> Volume:
        actor.need(Role.OPERATOR)
        new = with_defaults(new)
        found = check_volume(new, self._rules)
        if not found and new.credential is not None:
            kind = CredentialType(str(new.type))
            if not await self._credentials.exists(session, new.credential, kind):
                told = {"kind": f"{kind} credential", "ref": new.credential}
                found.append(problem("REFERENCE_NOT_FOUND", "/credential", **told))
        raise_problems(found)
        volume = Volume(
            id=new_id("vol"),
            name=new.name,
            type=new.type,
            source=new.source,
            credential=new.credential,
            created_at=self._clock.now(),
            created_by=actor.user,
        )
        await store.insert(session, volume)
        audit(session, "create", ("volume", volume.name), at=volume.created_at, actor=actor.user)
        return volume

    async def get(self, session: AsyncSession, ref: str) -> Volume:
        return store.volume_of(await store.find(session, ref))

    async def page(self, session: AsyncSession, request: PageRequest, kind: VolumeType | None = None) -> Page[Volume]:
        return await store.page(session, request, kind=kind)

    async def delete(self, session: AsyncSession, actor: Actor, ref: str) -> None:
        actor.need(Role.OPERATOR)
        row = await store.find(session, ref, lock=True)
        if users := await self._users(session, row.name):
            raise Conflict("VOLUME_IN_USE", volume=row.name, users=users)
        await session.delete(row)
        audit(session, "delete", ("volume", row.name), at=self._clock.now(), actor=actor.user)

    async def named(self, names: Collection[str]) -> Mapping[str, Volume]:
        """Those of them that there are."""
        async with self._database.read() as session:
            return await store.named(session, names)
