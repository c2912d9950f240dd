"""All logs of an attempt: its driver's, and those of a gang's tasks, each from the agent of its own node."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from cluster_groups.model.cluster import Endpoint, Node
from kernel.db import Database
from rayjobs import task_store
from rayjobs.gateway.base import GatewayError
from rayjobs.logs import LogId, LogKeeper, Source
from rayjobs.tables import TaskRow

AT_ONCE = 32
"""Tasks' logs of all gangs together; the other connections are for looks."""
NODE_GONE = "NODE_GONE"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where an attempt writes: its cluster, the agent beside the driver, and for a gang the nodes there are."""

    attempt_id: str
    endpoint: Endpoint
    driver_address: str
    nodes: Sequence[Node] | None = None
    """None for a plain job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """`open` logs are not copied to their end, of which `silent` ones could not be read just now."""

    new_bytes: int = 0
    open: int = 0
    silent: int = 0

    def __add__(self, other: "Gathered") -> "Gathered":
        return Gathered(
            new_bytes=self.new_bytes + other.new_bytes, open=self.open + other.open, silent=self.silent + other.silent
        )


class AttemptLogs:
    def __init__(self, database: Database, keeper: LogKeeper) -> None:
        self._database = database
        self._keeper = keeper
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def copy(self, place: Place, *, is_over: bool) -> Gathered:
        """What is new. Only when `is_over` a log can be complete, but that of a task that has ended.

        Raises GatewayError when the driver's cannot be read: what hides a task's may be its own node alone.
        """
        source = Source(
            log=LogId(attempt_id=place.attempt_id), endpoint=place.endpoint, agent_address=place.driver_address
        )
        copied = await self._keeper.copy(source, is_over=is_over)
        drivers = Gathered(new_bytes=copied.new_bytes, open=int(not copied.complete))
        if place.nodes is None:
            return drivers
        tasks, nodes = await self._open(place.attempt_id), {node.id: node for node in place.nodes}
        copies = (self._copy(task, nodes.get(task.node_id or ""), place.endpoint, is_over=is_over) for task in tasks)
        return sum(await asyncio.gather(*copies), start=drivers)

    async def close(self, attempt_id: str, *, text: bytes = b"", note: str | None = None) -> None:
        """All end here, the driver's after `text`."""
        await self._keeper.close(LogId(attempt_id=attempt_id), text=text, note=note)
        await self.close_tasks(attempt_id, note)

    async def close_tasks(self, attempt_id: str, note: str | None) -> None:
        for task in await self._open(attempt_id):
            await self._keeper.close(_log_of(task), note=note)

    async def _open(self, attempt_id: str) -> Sequence[TaskRow]:
        async with self._database.read() as session:
            return await task_store.with_open_logs(session, attempt_id)

    async def _copy(self, task: TaskRow, node: Node | None, endpoint: Endpoint, *, is_over: bool) -> Gathered:
        """Only from the task's node: the address was told by code under the user's account."""
        address = task.agent_address or ""
        if node is None or node.ip != urlsplit(address).hostname:
            return Gathered(open=1, silent=1)
        if is_over and not node.alive:
            await self._keeper.close(_log_of(task), note=NODE_GONE)
            return Gathered()
        source = Source(log=_log_of(task), endpoint=endpoint, agent_address=address)
        try:
            async with self._slots:
                copied = await self._keeper.copy(source, is_over=is_over or task.ended_at is not None)
        except GatewayError:
            return Gathered(open=1, silent=1)
        return Gathered(new_bytes=copied.new_bytes, open=int(not copied.complete))


def _log_of(task: TaskRow) -> LogId:
    return LogId(attempt_id=task.attempt_id, task_group=task.group_name, task=task.task)
