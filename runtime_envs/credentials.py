"""Secrets people hand over by name, so that bodies only ever refer to them. Encrypted at rest, never answered.

Fernet (AES-128-CBC with HMAC-SHA256) from the `cryptography` library, under keys of the installation: the first one
seals, all of them open, and `reseal` at the start makes the others dispensable.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from kernel.actor import Actor, Role
from kernel.clock import Clock
from kernel.db import Base, Database, Named
from kernel.errors import Conflict, InvalidInput, NotFound, Unavailable
from kernel.events import audit
from kernel.ids import new_id
from kernel.paging import Page, PageRequest, paginate

UsersOf = Callable[[AsyncSession, str], Awaitable[Sequence[str]]]

_FIELDS: Mapping[str, frozenset[str]] = {
    "ray_token": frozenset({"token"}),
    "cos": frozenset({"secret_id", "secret_key"}),
    "s3": frozenset({"access_key_id", "secret_access_key"}),
    "registry": frozenset({"server", "username", "password"}),
}
_OPTIONAL: Mapping[str, frozenset[str]] = {"cos": frozenset({"token"}), "s3": frozenset({"session_token"})}
"""Of keys that hold for a while only."""


class CredentialType(StrEnum):
    RAY_TOKEN = "ray_token"  # noqa: S105 - the name of a kind of secret
    """`data: {"token": …}`, what an attached cluster asks for."""
    COS = "cos"
    """`data: {"secret_id": …, "secret_key": …}`, keys of Tencent Cloud's object storage."""
    S3 = "s3"
    """`data: {"access_key_id": …, "secret_access_key": …}`."""
    REGISTRY = "registry"
    """`data: {"server": …, "username": …, "password": …}`, of a registry of container images."""


class CredentialRow(Named, Base):
    __tablename__ = "credentials"

    name: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    sealed: Mapped[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    """What may be shown of one."""

    id: str
    name: str
    type: CredentialType
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NewCredential:
    name: str
    type: CredentialType
    data: Mapping[str, str] = field(repr=False)


class Credentials:
    def __init__(self, database: Database, clock: Clock, keys: Sequence[bytes], users: UsersOf) -> None:
        """`users(session, name)` names the clusters and volumes that refer to a credential."""
        self._database = database
        self._clock = clock
        self._newest = Fernet(keys[0])
        self._fernet = MultiFernet([Fernet(key) for key in keys])
        self._users = users

    async def create(self, session: AsyncSession, actor: Actor, new: NewCredential) -> Credential:
        actor.need(Role.OPERATOR)
        _check_data(new.type, new.data)
        now = self._clock.now()
        row = CredentialRow(
            id=new_id("crd"),
            created_at=now,
            created_by=actor.user,
            name=new.name,
            type=new.type,
            sealed=self._sealed(new.data),
        )
        session.add(row)
        try:
            await session.flush()
        except IntegrityError as error:
            raise Conflict("NAME_TAKEN", pointer="/name", kind="credential", name=new.name) from error
        audit(session, "create", ("credential", new.name), at=now, actor=actor.user)
        return _shown(row)

    async def replace(self, session: AsyncSession, actor: Actor, ref: str, data: Mapping[str, str]) -> Credential:
        """Other secrets under the same name: who refers to it needs not be told."""
        actor.need(Role.OPERATOR)
        row = await _find(session, ref)
        _check_data(CredentialType(row.type), data)
        row.sealed = self._sealed(data)
        row.version += 1
        audit(session, "update", ("credential", row.name), at=self._clock.now(), actor=actor.user)
        return _shown(row)

    async def reseal(self, session: AsyncSession) -> list[str]:
        """Put under the newest key what lies under an older one; names those that no key of ours opens."""
        lost: list[str] = []
        for row in await session.scalars(select(CredentialRow).order_by(CredentialRow.name).with_for_update()):
            try:
                self._newest.decrypt(row.sealed)
            except InvalidToken:
                try:
                    row.sealed = self._fernet.rotate(row.sealed.encode()).decode()
                except InvalidToken:
                    lost.append(row.name)
        return lost

    async def get(self, session: AsyncSession, ref: str) -> Credential:
        return _shown(await _find(session, ref))

    async def page(self, session: AsyncSession, request: PageRequest) -> Page[Credential]:
        sortable = {"created_at": CredentialRow.created_at, "name": CredentialRow.name}
        found = await paginate(session, select(CredentialRow), request, sortable=sortable, key=CredentialRow.id)
        return Page(items=[_shown(row) for row in found.items], next_cursor=found.next_cursor)

    async def delete(self, session: AsyncSession, actor: Actor, ref: str) -> None:
        actor.need(Role.OPERATOR)
        row = await _find(session, ref, lock=True)
        if users := await self._users(session, row.name):
            raise Conflict("CREDENTIAL_IN_USE", credential=row.name, users=users)
        await session.delete(row)
        audit(session, "delete", ("credential", row.name), at=self._clock.now(), actor=actor.user)

    async def exists(self, session: AsyncSession, name: str, kind: CredentialType = CredentialType.RAY_TOKEN) -> bool:
        """One that is there is not deleted before this unit of work is over."""
        statement = select(CredentialRow.id).where(CredentialRow.name == name, CredentialRow.type == kind)
        return await session.scalar(statement.with_for_update(read=True)) is not None

    async def secret(self, name: str) -> str | None:
        """The token of a `ray_token` credential; None when there is none of this name."""
        data = await self.data(name, CredentialType.RAY_TOKEN)
        return data["token"] if data else None

    async def data(self, name: str, kind: CredentialType) -> Mapping[str, str] | None:
        """None: there is none of this name and type."""
        same = (CredentialRow.name == name, CredentialRow.type == kind)
        async with self._database.read() as session:
            sealed = await session.scalar(select(CredentialRow.sealed).where(*same))
        if sealed is None:
            return None
        try:
            data: dict[str, str] = json.loads(self._fernet.decrypt(sealed.encode()))
        except InvalidToken as error:
            raise Unavailable("CREDENTIAL_KEY_WRONG", credential=name) from error
        return data

    def _sealed(self, data: Mapping[str, str]) -> str:
        return self._fernet.encrypt(json.dumps(dict(data)).encode()).decode()


def _check_data(kind: CredentialType, data: Mapping[str, str]) -> None:
    """Blanks around a secret are never meant, and make some SDKs fail much later; so does what no header carries."""
    wanted, optional = _FIELDS[kind], _OPTIONAL.get(kind, frozenset())
    is_complete = wanted <= data.keys() <= wanted | optional
    is_plain = all(value.isprintable() for value in data.values()) and (
        kind is not CredentialType.RAY_TOKEN or all("!" <= letter <= "~" for letter in "".join(data.values()))
    )
    if not is_complete or not is_plain or not all(value and value.strip() == value for value in data.values()):
        fields = sorted(wanted) + [f"{name} (optional)" for name in sorted(optional)]
        raise InvalidInput("CREDENTIAL_DATA_INVALID", pointer="/data", type=kind, fields=fields)


async def _find(session: AsyncSession, ref: str, *, lock: bool = False) -> CredentialRow:
    """`lock` waits for those who are about to refer to it, and has others wait."""
    statement = select(CredentialRow).where((CredentialRow.id == ref) | (CredentialRow.name == ref))
    row = (await session.scalars(statement.with_for_update() if lock else statement)).one_or_none()
    if row is None:
        raise NotFound("NOT_FOUND", kind="credential", ref=ref)
    return row


def _shown(row: CredentialRow) -> Credential:
    return Credential(
        id=row.id,
        name=row.name,
        type=CredentialType(row.type),
        created_at=row.created_at,
        created_by=row.created_by,
    )
