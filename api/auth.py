"""Tokens: a secret shown once, its digest kept, and the actor it stands for answered from memory on the hot path."""

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.tables import TokenRow
from kernel.actor import EVERY, SYSTEM_ACTOR, Actor, Role
from kernel.clock import Clock
from kernel.db import Database, after_commit
from kernel.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from kernel.events import audit
from kernel.ids import new_id
from kernel.paging import Page, PageRequest, paginate

SECRET_PREFIX = "mst_"  # noqa: S105 - what secrets begin with is none
ADMIN = "admin"
CACHE_S = 10.0
"""How long another process may go on accepting a token that was deleted here."""
CACHE_SIZE = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSpec:
    name: str
    user: str
    role: Role
    resource_packages: tuple[str, ...] = (EVERY,)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    actor: Actor
    expires_at: datetime | None
    until: float


class Tokens:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._deletions = 0

    async def authenticate(self, authorization: str | None) -> Actor:
        """The actor behind an `Authorization: Bearer …` header."""
        return await self.actor_of_digest(digest(bearer(authorization)))

    async def actor_of_digest(self, key: str) -> Actor:
        """For what stands for a token without knowing its secret, and ends with it."""
        known = self._known.get(key)
        if known is None or known.until < time.monotonic():
            known = await self._look_up(key)
        if known.expires_at is not None and known.expires_at <= self._clock.now():
            raise Unauthenticated("UNAUTHENTICATED")
        return known.actor

    async def create(self, session: AsyncSession, actor: Actor, spec: TokenSpec) -> tuple[TokenRow, str]:
        """The row and its secret, which nobody can ask for again."""
        actor.need(Role.ADMIN)
        if spec.expires_at is not None and spec.expires_at <= self._clock.now():
            raise InvalidInput("INVALID_VALUE", pointer="/expires_at", allowed="> now")
        if await _by_name(session, spec.name):
            raise Conflict("NAME_TAKEN", pointer="/name", kind="token", name=spec.name)
        secret = SECRET_PREFIX + secrets.token_urlsafe(32)
        row = self._add(session, actor, spec, digest(secret))
        await session.flush()
        return row, secret

    async def list(self, session: AsyncSession, actor: Actor, page: PageRequest) -> Page[TokenRow]:
        actor.need(Role.ADMIN)
        sortable = {"created_at": TokenRow.created_at, "name": TokenRow.name}
        return await paginate(session, select(TokenRow), page, sortable=sortable, key=TokenRow.id)

    async def get(self, session: AsyncSession, actor: Actor, ref: str) -> TokenRow:
        actor.need(Role.ADMIN)
        row = (
            await session.execute(select(TokenRow).where(or_(TokenRow.id == ref, TokenRow.name == ref)))
        ).scalar_one_or_none()
        if row is None:
            raise NotFound("NOT_FOUND", kind="token", ref=ref)
        return row

    async def delete(self, session: AsyncSession, actor: Actor, ref: str) -> None:
        row = await self.get(session, actor, ref)
        await session.execute(delete(TokenRow).where(TokenRow.id == row.id))
        if row.role == Role.ADMIN and not await self._has_admin(session):
            raise Conflict("LAST_ADMIN_TOKEN")
        audit(session, "delete", ("token", row.name), at=self._clock.now(), actor=actor.user)
        after_commit(session, lambda: self._forget(row.digest))

    async def ensure_admin(self, session: AsyncSession, given: str | None, kept: str | None) -> str | None:
        """Make sure that somebody can manage tokens.

        `given` is the setting, which always holds; without it a token is made only where no admin's is left, from the
        secret `kept` for the local command line or a new one. Answers the secret when it is a new or changed one.
        """
        row = await _by_name(session, ADMIN)
        if given is None and await self._has_admin(session):
            return None
        secret = given or kept or SECRET_PREFIX + secrets.token_urlsafe(32)
        if row is None:
            self._add(session, SYSTEM_ACTOR, TokenSpec(name=ADMIN, user=ADMIN, role=Role.ADMIN), digest(secret))
            return secret
        changed = row.digest != digest(secret)
        row.digest, row.role, row.expires_at = digest(secret), Role.ADMIN, None
        return secret if changed else None

    def _add(self, session: AsyncSession, actor: Actor, spec: TokenSpec, secret_digest: str) -> TokenRow:
        now = self._clock.now()
        row = TokenRow(
            id=new_id("tok"),
            created_at=now,
            created_by=actor.user,
            name=spec.name,
            digest=secret_digest,
            user=spec.user,
            role=str(spec.role),
            resource_packages=list(spec.resource_packages),
            expires_at=spec.expires_at,
        )
        session.add(row)
        detail = {"user": spec.user, "role": str(spec.role)}
        audit(session, "create", ("token", spec.name), at=now, actor=actor.user, **detail)
        return row

    async def _has_admin(self, session: AsyncSession) -> bool:
        unexpired = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > self._clock.now())
        statement = select(func.count()).select_from(TokenRow).where(TokenRow.role == Role.ADMIN, unexpired)
        return (await session.execute(statement)).scalar_one() > 0

    async def _look_up(self, key: str) -> _Known:
        deletions = self._deletions
        async with self._database.read() as session:
            row = (await session.execute(select(TokenRow).where(TokenRow.digest == key))).scalar_one_or_none()
        if row is None:
            self._known.pop(key, None)
            raise Unauthenticated("UNAUTHENTICATED")
        if len(self._known) >= CACHE_SIZE:
            self._known.clear()
        known = _Known(actor_of(row), row.expires_at, time.monotonic() + CACHE_S)
        if deletions == self._deletions:  # else it may be the one that was deleted during the look
            self._known[key] = known
        return known

    def _forget(self, key: str) -> None:
        self._deletions += 1
        self._known.pop(key, None)


def bearer(authorization: str | None) -> str:
    """The secret in the header."""
    scheme, _, secret = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated("UNAUTHENTICATED")
    return secret.strip()


def actor_of(row: TokenRow) -> Actor:
    packages: Sequence[str] = row.resource_packages
    return Actor(user=row.user, role=Role(row.role), resource_packages=tuple(packages), token=row.name)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


async def _by_name(session: AsyncSession, name: str) -> TokenRow | None:
    return (await session.execute(select(TokenRow).where(TokenRow.name == name))).scalar_one_or_none()
