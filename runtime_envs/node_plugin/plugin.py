"""The two plugins as Ray calls them, on the event loop of the node's agent, which nothing here may hold up.

Ray counts who uses a URI. Where it has no room to keep what nobody uses (RAY_RUNTIME_ENV_MUSTER_MOUNTS_CACHE_SIZE_GB
is 0 on our nodes) it has us remove it with its last use.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ray._private.runtime_env.context import RuntimeEnvContext
from ray._private.runtime_env.plugin import RuntimeEnvPlugin
from ray._private.runtime_env.working_dir import set_pythonpath_in_context

from .mounting import Mounter, mounts_folder
from .packages import fetch, is_held, package_folder, remove
from .terms import MOUNTS_KEY, PACKAGE_KEY, SetupError, node_root, read_mounts, read_package

_THREADS = 8
_log = logging.getLogger(__name__)


class _InTurn:
    """Blocking steps in threads, those with the same key one after another, each to its end."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="muster")
        self._last: dict[str, asyncio.Task[Any]] = {}

    def add(self, key: str, step: Callable[..., Any], *arguments: object) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(self._run(self._last.get(key), step, *arguments))
        self._last[key] = task
        task.add_done_callback(lambda done: self._over(key, done))
        return task

    def is_last(self, key: str, task: asyncio.Task[Any]) -> bool:
        return self._last.get(key) in {None, task}

    async def _run(self, before: asyncio.Task[Any] | None, step: Callable[..., Any], *arguments: object) -> Any:
        if before is not None:
            await asyncio.wait([before])
        return await asyncio.get_running_loop().run_in_executor(self._threads, step, *arguments)

    def _over(self, key: str, task: asyncio.Task[Any]) -> None:
        if self._last.get(key) is task:
            del self._last[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("muster: %s: %s", key, error)


class MountsPlugin(RuntimeEnvPlugin):
    name = MOUNTS_KEY
    priority = 3

    def __init__(self) -> None:
        self._mounter = Mounter()
        self._steps = _InTurn()

    def get_uris(self, runtime_env: Mapping[str, Any]) -> list[str]:
        """One for all mounts of an attempt. What is malformed has none: `create` then says so, as this must not."""
        try:
            return [f"muster-mounts://{read_mounts(runtime_env[MOUNTS_KEY])[0].attempt}"]
        except (KeyError, SetupError):
            return []

    async def create(
        self, uri: str | None, runtime_env: Mapping[str, Any], context: RuntimeEnvContext, logger: logging.Logger
    ) -> float:
        del uri, context, logger
        origin, mounts = read_mounts(runtime_env[MOUNTS_KEY])
        step = self._steps.add(origin.attempt, self._mounter.mount_all, origin, mounts)
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            if self._steps.is_last(origin.attempt, step):  # nobody else waits for the same
                self._steps.add(origin.attempt, self._mounter.unmount_all, origin.attempt)
            raise
        return 1  # more than there is room for

    def modify_context(
        self, uris: list[str], runtime_env: Mapping[str, Any], context: RuntimeEnvContext, logger: logging.Logger
    ) -> None:
        del uris, logger
        origin, mounts = read_mounts(runtime_env[MOUNTS_KEY])
        for mount in mounts:
            path = f"{mounts_folder(node_root(), origin.attempt)}/{mount.path}"
            context.env_vars.setdefault(mount.variable, path)

    def delete_uri(self, uri: str, logger: logging.Logger) -> float:
        del logger
        attempt = uri.rpartition("/")[2]
        self._steps.add(attempt, self._mounter.unmount_all, attempt)
        return 1


class PackagePlugin(RuntimeEnvPlugin):
    name = PACKAGE_KEY
    priority = 2

    def __init__(self) -> None:
        self._steps = _InTurn()
        self._sizes: dict[str, int] = {}
        """Of those that lie here, which are those that Ray's cache counts."""

    def get_uris(self, runtime_env: Mapping[str, Any]) -> list[str]:
        try:
            return [f"muster-package://{read_package(runtime_env[PACKAGE_KEY])[1].sha256}"]
        except (KeyError, SetupError):
            return []

    async def create(
        self, uri: str | None, runtime_env: Mapping[str, Any], context: RuntimeEnvContext, logger: logging.Logger
    ) -> float:
        del uri, context
        origin, package = read_package(runtime_env[PACKAGE_KEY])
        sha256 = package.sha256

        def fetch_once() -> int:
            """What is new by it: Ray adds the answers up."""
            if sha256 in self._sizes:
                return 0
            self._sizes[sha256] = fetch(origin, package, logger)
            return self._sizes[sha256]

        return float(await asyncio.shield(self._steps.add(sha256, fetch_once)))

    def modify_context(
        self, uris: list[str], runtime_env: Mapping[str, Any], context: RuntimeEnvContext, logger: logging.Logger
    ) -> None:
        """As Ray's own plugin for working directories does."""
        del uris, logger
        folder = package_folder(read_package(runtime_env[PACKAGE_KEY])[1].sha256)
        context.command_prefix += ["cd", shlex.quote(folder), "&&"]
        set_pythonpath_in_context(folder, context)

    def delete_uri(self, uri: str, logger: logging.Logger) -> float:
        del logger
        sha256 = uri.rpartition("/")[2]
        if is_held(sha256):
            return 0  # it stays, for the next who needs it

        def forget() -> None:
            if sha256 in self._sizes and remove(sha256):
                del self._sizes[sha256]

        self._steps.add(sha256, forget)
        return self._sizes.get(sha256, 0)
