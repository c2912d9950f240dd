"""The layer above clusters, as far as clusters ask it."""
# ruff: noqa: ARG002 - a fake keeps the signature of what it stands for

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor


class FakeRuns:
    def __init__(self) -> None:
        self.on: dict[str, list[str]] = {}
        self.settling_on: dict[str, list[str]] = {}
        self.ended_at: dict[str, datetime] = {}
        self.told_to_end: list[str] = []
        self.woken: list[str] = []

    async def live(self, session: AsyncSession, cluster_id: str) -> Sequence[str]:
        return self.on.get(cluster_id, [])

    async def settling(self, session: AsyncSession, cluster_id: str) -> Sequence[str]:
        return self.settling_on.get(cluster_id, [])

    async def last_ended_at(self, session: AsyncSession, cluster_id: str) -> datetime | None:
        return self.ended_at.get(cluster_id)

    async def end(self, session: AsyncSession, cluster_id: str, actor: Actor) -> None:
        self.told_to_end += self.on.get(cluster_id, [])

    async def wake(self, session: AsyncSession, cluster_id: str) -> None:
        self.woken.append(cluster_id)


class FakeCredentials:
    def __init__(self, **secrets: str) -> None:
        self.secrets = secrets

    async def exists(self, session: AsyncSession, name: str) -> bool:
        return name in self.secrets

    async def secret(self, name: str) -> str | None:
        return self.secrets.get(name)
