"""What the services need of the layers above them, and the names of the loops they wake."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from kernel.actor import Actor
from kernel.errors import Conflict

CLUSTER_LOOP = "clusters"
HEALTH_LOOP = "health"
QUEUE_LOOP = "queue"
QUEUE_KEY = "queue"

UsersOf = Callable[[AsyncSession, str], Awaitable[Sequence[str]]]
"""From a name to those who hold on to it: jobs by name, runs by id."""


class ClusterRuns(Protocol):
    """The runs on a cluster, which are the business of the layer above."""

    async def live(self, session: AsyncSession, cluster_id: str) -> Sequence[str]:
        """Ids of the runs that are placed there and not over."""
        ...

    async def settling(self, session: AsyncSession, cluster_id: str) -> Sequence[str]:
        """Ids of the attempts that are over there, but whose log is still to be copied."""
        ...

    async def last_ended_at(self, session: AsyncSession, cluster_id: str) -> datetime | None:
        """When the last of them ended; None if there never was one."""
        ...

    async def end(self, session: AsyncSession, cluster_id: str, actor: Actor) -> None:
        """Stop them all: the cluster is taken away."""
        ...

    async def wake(self, session: AsyncSession, cluster_id: str) -> None:
        """The cluster has changed: have those who wait for it look again."""
        ...


class Credentials(Protocol):
    """Ray tokens of attached clusters, by the name of their credential."""

    async def exists(self, session: AsyncSession, name: str) -> bool: ...

    async def secret(self, name: str) -> str | None: ...


async def busy_with(runs: ClusterRuns, session: AsyncSession, cluster_id: str) -> bool:
    """Whether anything of a run still needs the cluster."""
    return bool(await runs.live(session, cluster_id) or await runs.settling(session, cluster_id))


async def store_named(session: AsyncSession, row: object, kind: str, name: str) -> None:
    """Insert; the unique index is the judge of whether the name is free."""
    session.add(row)
    try:
        await session.flush()
    except IntegrityError as error:
        raise Conflict("NAME_TAKEN", pointer="/name", kind=kind, name=name) from error


def refuse_new_values(there: object, changes: Mapping[str, Any], fixed: Sequence[str]) -> None:
    """Fields that keep their first value; sending that value again is no change."""
    changed = [name for name in fixed if name in changes and changes[name] != getattr(there, name)]
    if changed:
        raise Conflict("FIELD_IMMUTABLE", pointer=f"/{changed[0]}", fields=changed)
