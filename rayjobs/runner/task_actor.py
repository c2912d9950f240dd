"""The Ray actor that keeps a task's place: it lives in the task's bundle and starts the task's guard beside itself.

Its death, however sudden, ends the task: the guard holds a pipe from it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ray
from ray._private.worker import global_worker

from .clock import now_s
from .environment import bootstrap_text, process_environment, task_variables
from .guard import Ended, Guard
from .processes import MARK, sweep
from .spawn import Launch, spawn_guard
from .spec import RunnerSpec

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Place(NamedTuple):
    """`ip` is where other tasks reach this one, `agent` the HTTP address of its node's agent."""

    node_id: str
    ip: str
    host_ip: str
    agent: str


class Order(NamedTuple):
    """All that a task depends on: which one it is, where everybody is, what it joins Ray with."""

    spec: RunnerSpec
    group: int
    task: int
    addresses: Sequence[Sequence[str]]
    host_ip: str
    ray_variables: Mapping[str, str]


class TaskActor:
    """All methods are coroutines, so that a stop gets through; all may be called again when no answer came."""

    def __init__(self) -> None:
        self._guard: Guard | None = None
        self._mark = os.urandom(8).hex()
        self._is_stopped = False
        self._lease_until: float | None = None
        self._held = asyncio.Event()
        self._started: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[Ended | None] | None = None

    async def place(self) -> Place:
        node = _node()
        ip = node.node_ip_address
        address = f"[{ip}]" if ":" in ip else ip
        agent = f"http://{address}:{node.dashboard_agent_listen_port}"
        return Place(ray.get_runtime_context().get_node_id(), ip, ip, agent)

    async def hold(self, until: float | None) -> float:
        """Tell until when the job's lease lasts, by this node's clock: what that shows is the answer."""
        if until is not None:
            self._lease_until = until
            self._held.set()
            if self._guard is not None:
                self._guard.hold(until)
        return now_s()

    async def start(self, order: Order) -> bool:
        """False when a stop came first. Where there is a lease, nothing begins before it is heard of."""
        if self._started is None:
            if self._is_stopped:
                return False
            self._started = asyncio.ensure_future(self._start(order))
        await asyncio.shield(self._started)
        return True

    async def wait(self) -> Ended | None:
        """The end when no process of the task is left; None when the guard was killed, and we ended the rest."""
        if self._ended is None:
            raise RuntimeError("the task was not started")
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        self._is_stopped = True
        if self._guard is not None:
            self._guard.stop()

    async def _start(self, order: Order) -> None:
        if order.spec.lease is not None:
            await self._held.wait()
        self._guard = await asyncio.to_thread(self._spawn, order)
        self._ended = asyncio.ensure_future(asyncio.to_thread(self._watch, self._guard))
        if self._is_stopped:
            self._guard.stop()

    def _spawn(self, order: Order) -> Guard:
        spec, group = order.spec, order.spec.groups[order.group]
        folder = os.path.join(_node().get_logs_dir_path(), "muster", spec.submission_id)
        name = f"{group.name}-{order.task}"
        own = os.path.join(folder, name)
        os.makedirs(own, exist_ok=True)
        bootstrap = os.path.join(own, "pai_bootstrap.sh")
        variables = task_variables(
            spec, order.addresses, group=order.group, task=order.task, host_ip=order.host_ip, bootstrap=bootstrap
        )
        with open(bootstrap, "wb") as file:
            file.write(bootstrap_text(variables, group.command))
        events = os.path.join(own, "guard.jsonl")
        launch = Launch(bootstrap, events, spec.stop_grace_s, spec.max_runtime_s, self._lease_until)
        environment = {**process_environment(os.environ, _HOME), **order.ray_variables, MARK: self._mark}
        return spawn_guard(launch, environment, f"{folder}{os.sep}{name}.log", _HOME)

    def _watch(self, guard: Guard) -> Ended | None:
        ended = guard.wait()
        if ended is None:
            sweep(self._mark, guard.session)
        return ended


def _node() -> Any:
    """As Ray's own supervisor of jobs asks where it is."""
    return global_worker.node
