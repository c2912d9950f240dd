"""Managed Ray clusters as real `ray start` processes on this machine: many at once, each stopped alone, no root."""

import asyncio
import os
import secrets
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import structlog

from cluster_groups.backends import local_processes as processes
from cluster_groups.backends.base import ClusterProbe
from cluster_groups.backends.local_command import (
    STOP_GRACE_S,
    LocalSettings,
    head_command,
    node_environment,
    plan_nodes,
    worker_command,
)
from cluster_groups.backends.local_ports import free_port, is_free
from cluster_groups.backends.local_sight import Fate, Look, Sight, due_nodes, judge, needs_other_port
from cluster_groups.backends.local_state import LocalCluster, LocalNode, StateFolder
from cluster_groups.model.cluster import ClusterSpec, Observed, Phase
from kernel.errors import Unavailable
from runtime_envs.node_plugin.system import unmount_below

Arguments = TypeVarTuple("Arguments")
Answer = TypeVar("Answer")

log = structlog.get_logger()

LAST_RESORT_S = 3 * STOP_GRACE_S
"""After which a guard that still waits for somebody it cannot end, as a root's process, is ended itself."""
THREADS = 8
"""Of its own: files and processes may take long, and must not keep the rest of the service from its threads."""

_WORKER_PARTS = frozenset({"raylet"})
_HEAD_PARTS = frozenset({"raylet", "gcs_server"})
"""`ray start --block` ends when one of these crashes, but not when it took a SIGTERM, as anybody's `ray stop` sends."""


class LocalBackend:
    """Every call is one short step towards the goal. A broken cluster stays broken until it was stopped.

    While a cluster is wanted, `start` is to be called again whenever `nodes_up` is below `nodes_wanted`: it starts
    workers once their head is up, and replaces lost ones.
    """

    def __init__(self, root: Path, probe: ClusterProbe, settings: LocalSettings) -> None:
        self._state = StateFolder(root)
        self._probe = probe
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="local-clusters")
        self._ports = threading.Lock()
        """From the choice of a port until it is stored; taken last."""
        self._locks: dict[str, threading.Lock] = {}

    async def start(self, spec: ClusterSpec) -> None:
        await self._in_thread(self._start, spec)

    async def observe(self, cluster_id: str) -> Observed:
        cluster, observed = await self._in_thread(self._look, cluster_id)
        if cluster is None or observed.phase is Phase.UP:
            return observed
        if observed.phase is not Phase.STARTING or observed.nodes_up < observed.nodes_wanted:
            return observed
        if (await self._probe.probe(cluster.endpoint, with_nodes=False)).failure:
            return observed
        await self._in_thread(self._remember_it_came_up, cluster_id)
        return replace(observed, phase=Phase.UP, endpoint=cluster.endpoint)

    async def stop(self, cluster_id: str) -> None:
        await self._in_thread(self._stop, cluster_id)

    async def owned(self) -> Sequence[str]:
        return await self._in_thread(self._state.ids)

    async def _in_thread(self, step: Callable[[*Arguments], Answer], *arguments: *Arguments) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, step, *arguments)

    def _lock_of(self, cluster_id: str) -> threading.Lock:
        """Never dropped: somebody might be waiting for it."""
        return self._locks.setdefault(cluster_id, threading.Lock())

    def _start(self, spec: ClusterSpec) -> None:
        with self._lock_of(spec.id):
            cluster = self._state.load(spec.id) or self._intend(spec)
            if cluster.stopping_since is not None:
                return
            cluster = self._adopt(cluster)
            if needs_other_port(_look_at(cluster)):
                cluster = self._with_other_port(cluster)
            for node in due_nodes(_look_at(cluster), time.time()):
                if _is_out_of_the_way(node):
                    cluster = self._launch(cluster, node, spec)

    def _intend(self, spec: ClusterSpec) -> LocalCluster:
        with self._ports:
            cluster = LocalCluster(
                id=spec.id,
                folder=str(self._settings.temp_root / f"muster-{secrets.token_hex(4)}"),
                token=secrets.token_hex(32),
                dashboard_port=free_port(self._settings.dashboard_ports, self._ports_of_all()),
                nodes=plan_nodes(spec),
            )
            self._state.save(cluster)
        return cluster

    def _ports_of_all(self) -> set[int]:
        clusters = map(self._state.load, self._state.ids())
        return {cluster.dashboard_port for cluster in clusters if cluster}

    def _adopt(self, cluster: LocalCluster) -> LocalCluster:
        """Find what was started by a process that ended before it could note the pid."""
        for node in cluster.nodes:
            if node.folder and not node.pid and (pid := processes.find_node(node.folder)):
                cluster = cluster.with_node(replace(node, pid=pid))
                self._state.save(cluster)
                log.info("local_node_adopted", cluster=cluster.id, node=node.name, pid=pid)
        return cluster

    def _with_other_port(self, cluster: LocalCluster) -> LocalCluster:
        unborn = replace(cluster.head, folder=None, pid=None)
        with self._ports:
            port = free_port(self._settings.dashboard_ports, self._ports_of_all())
            log.warning("local_port_lost", cluster=cluster.id, lost=cluster.dashboard_port, port=port)
            cluster = replace(cluster, dashboard_port=port, ports_tried=cluster.ports_tried + 1).with_node(unborn)
            self._state.save(cluster)
        return cluster

    def _launch(self, cluster: LocalCluster, node: LocalNode, spec: ClusterSpec) -> LocalCluster:
        node = replace(node, folder=f"{cluster.folder}/{cluster.starts}", pid=None, started_at=time.time())
        cluster = replace(cluster, starts=cluster.starts + 1).with_node(node)
        self._state.save(cluster)
        _prepare_folders(cluster, node)
        environment = node_environment(self._settings, cluster.token_path, node)
        pid = processes.spawn(self._command(spec, cluster, node), environment, str(node.folder))
        cluster = cluster.with_node(replace(node, pid=pid))
        self._state.save(cluster)
        log.info("local_node_started", cluster=cluster.id, node=node.name, pid=pid)
        return cluster

    def _command(self, spec: ClusterSpec, cluster: LocalCluster, node: LocalNode) -> list[str]:
        if node.is_head:
            return head_command(spec, cluster, self._settings)
        gcs_address = Path(f"{cluster.head.folder}/ray_current_cluster").read_text()
        return worker_command(spec, node, gcs_address, self._settings)

    def _look(self, cluster_id: str) -> tuple[LocalCluster | None, Observed]:
        with self._lock_of(cluster_id):
            cluster = self._state.load(cluster_id)
            if cluster is None:
                return None, Observed(phase=Phase.ABSENT)
            return cluster, judge(_look_at(cluster))

    def _remember_it_came_up(self, cluster_id: str) -> None:
        with self._lock_of(cluster_id):
            cluster = self._state.load(cluster_id)
            if cluster:
                self._state.save(replace(cluster, came_up=True))

    def _stop(self, cluster_id: str) -> None:
        with self._lock_of(cluster_id):
            cluster = self._state.load(cluster_id)
            if cluster is None or not self._has_ended(cluster):
                return
        # It may take minutes, and needs no lock: a cluster that is stopping is started by nobody.
        if mounts := unmount_below(cluster.folder):
            log.error("local_cluster_has_mounts", cluster=cluster_id, mounts=mounts)  # what is below them stays whole
            return
        _remove_tree(Path(cluster.folder))
        with self._lock_of(cluster_id):
            for node in cluster.nodes:
                processes.forget(node.pid)
            self._state.remove(cluster_id)
        log.info("local_cluster_gone", cluster=cluster_id)

    def _has_ended(self, cluster: LocalCluster) -> bool:
        """A step towards its end; True once its processes are all gone."""
        if cluster.stopping_since is None:
            cluster = replace(self._adopt(cluster), stopping_since=time.time())
            _signal_nodes(cluster, signal.SIGTERM)  # before it is noted: from then on the guards are only waited for
            self._state.save(cluster)
            log.info("local_cluster_stopping", cluster=cluster.id)
        elif time.time() - cluster.stopping_since >= LAST_RESORT_S:
            _signal_nodes(cluster, signal.SIGKILL)
        return not (_any_node_alive(cluster) or processes.kill_all_of(cluster.token_path))


def _look_at(cluster: LocalCluster) -> Look:
    nodes = {node.name: _sight(node) for node in cluster.nodes}
    head_failed = nodes[cluster.head.name].fate is Fate.FAILED
    return Look(cluster=cluster, nodes=nodes, port_is_busy=head_failed and not is_free(cluster.dashboard_port))


def _sight(node: LocalNode) -> Sight:
    if not node.folder or not node.pid:
        return Sight(fate=Fate.UNBORN)
    has_joined = _has_joined(node, Path(node.folder))
    is_alive = processes.is_node(node.pid, node.folder)
    if is_alive and not has_joined:
        return Sight(fate=Fate.STARTING)
    if is_alive and processes.has_parts(node.pid, _HEAD_PARTS if node.is_head else _WORKER_PARTS):
        return Sight(fate=Fate.READY)
    return Sight(
        fate=Fate.LOST if has_joined else Fate.FAILED,
        exit_code=None if is_alive else processes.exit_code(node.pid),
        last_lines=tuple(processes.last_lines(node.folder)),
    )


def _has_joined(node: LocalNode, folder: Path) -> bool:
    """`ray start` has finished; on a head also: its agent listens, without which every submission is refused."""
    if not (folder / "ray_current_cluster").exists():
        return False
    agents = folder.glob("session_latest/dashboard_agent_listen_port_*")
    return not node.is_head or any(file.read_text() not in {"", "-1"} for file in agents)


def _is_out_of_the_way(node: LocalNode) -> bool:
    """Nothing of its former start may go on beside a new one: what its guard still has is ended first."""
    if node.pid and processes.is_node(node.pid, str(node.folder)):
        processes.signal_node(node.pid, str(node.folder), signal.SIGTERM)
        return False
    processes.forget(node.pid)
    if node.folder:  # else this is its first start
        unmount_below(node.own_folder)
    return True


def _any_node_alive(cluster: LocalCluster) -> bool:
    return any(node.pid and processes.is_node(node.pid, str(node.folder)) for node in cluster.nodes)


def _signal_nodes(cluster: LocalCluster, number: int) -> None:
    for node in cluster.nodes:
        if node.pid:
            processes.signal_node(node.pid, str(node.folder), number)


def _prepare_folders(cluster: LocalCluster, node: LocalNode) -> None:
    """The cluster's folder has a name nobody could guess; what exists already must be what a former call made."""
    folder = Path(cluster.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Unavailable("TEMP_FOLDER_NOT_PRIVATE", path=cluster.folder)
    with os.fdopen(os.open(cluster.token_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(cluster.token)
    Path(str(node.folder)).mkdir(mode=0o700)


def _remove_tree(folder: Path) -> None:
    """Also through folders that a user's package made read-only. Nothing may be mounted below it any more."""
    if not folder.exists():
        return
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)
