"""Muster as people have it: the service's own process on a state folder, and the command line beside it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from cluster_groups.backends.local_state import LocalCluster, StateFolder
from tests.builders.leftovers import end_leftovers
from tests.builders.waiting import wait_until

MUSTER = Path(sys.executable).with_name("muster")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
CALL_TIMEOUT_S = 150
GONE_TIMEOUT_S = 60

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a command told, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def body(self) -> Json:
        return dict(json.loads(self.out))


class Service:
    """`command` starts it with `variables` beside the usual ones."""

    def __init__(self, folder: Path, command: Sequence[str | Path] = (MUSTER, "serve"), **variables: str) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.log = folder / "serve.log"
        self.address = ""
        self._command = command
        self._variables = variables
        self._home = folder / "home"
        self._home.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """On a free port at first, later on the same."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment({}), stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._is_ready, START_TIMEOUT_S, self.log.read_text)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code, negative when the signal ended it. What it was doing on clusters goes on."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(STOP_TIMEOUT_S)
        self._process = None
        return code

    def muster(self, *arguments: object, **variables: str) -> Said:
        """One call of the command line to its end."""
        done = subprocess.run(
            [MUSTER, *map(str, arguments)],
            env=self._environment(variables),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT_S,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def following(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on beside the test."""
        with subprocess.Popen(
            [MUSTER, *map(str, arguments)],
            env=self._environment({}),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            try:
                yield command
            finally:
                command.kill()

    def done(self, *arguments: object) -> str:
        """What a command that has to succeed says on standard output."""
        said = self.muster(*arguments)
        assert said.code == 0, (arguments, said)
        return said.out.strip()

    def show(self, noun: str, ref: str) -> Json:
        return dict(json.loads(self.done(noun, "show", ref, "-o", "json")))

    def why(self, run: str) -> Json:
        return dict(json.loads(self.done("run", "why", run, "-o", "json")))

    def items(self, *listing: object) -> list[Json]:
        return list(json.loads(self.done(*listing, "-o", "json"))["items"])

    def kill_node(self, name: str) -> None:
        """As if its machine were gone, but for what has left the tree of its processes: a node of the one cluster."""
        node = self._node(name)
        for process in (node, *node.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def kill_raylet(self, name: str) -> None:
        """What is left of the node is ended by its guard."""
        (raylet,) = (one for one in self._node(name).children(recursive=True) if one.name() == "raylet")
        raylet.kill()

    def cluster_folders(self) -> list[str]:
        """Of local clusters whose processes are on their way or there."""
        return [cluster.folder for cluster in self._local_clusters() if any(node.pid for node in cluster.nodes)]

    def _node(self, name: str) -> psutil.Process:
        (cluster,) = self._local_clusters()
        (node,) = (psutil.Process(node.pid) for node in cluster.nodes if node.name == name)
        return node

    def close(self) -> None:
        """Whatever the test left: runs, clusters, the service, and what a lost service left."""
        try:
            if self._process is not None and self._process.poll() is None:
                self._delete_clusters()
        finally:
            if self._process is not None:
                self.stop()
            end_leftovers(self.state_dir)

    def _delete_clusters(self) -> None:
        def left() -> list[Json]:
            return self.items("cluster", "list")

        for run in self.items("run", "list", "--limit", "500"):
            if not run["ended_at"]:
                self.muster("run", "stop", run["id"])
        for cluster in left():
            self.muster("cluster", "delete", cluster["name"], "--force")
        wait_until(lambda: not left(), GONE_TIMEOUT_S, left)

    def _local_clusters(self) -> list[LocalCluster]:
        state = StateFolder(self.state_dir / "local")
        return list(filter(None, map(state.load, state.ids())))

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        first_line = self.log.read_text().partition("\n")[0]
        if " on http://" not in first_line:
            return False
        self.address = first_line.rpartition(" ")[2]
        try:
            return bool(httpx.get(f"{self.address}/readyz", trust_env=False).is_success)
        except httpx.TransportError:
            return False

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "MUSTER_STATE_DIR": str(self.state_dir),
            "MUSTER_PORT": self.address.rpartition(":")[2] or "0",
            "MUSTER_ADDRESS": self.address,
            **self._variables,
            **variables,
        }


@contextmanager
def running(service: Service) -> Iterator[Service]:
    try:
        service.start()
        yield service
    finally:
        service.close()


def job_on(service: Service, name: str, cluster: str, package: str, command: str, *options: str) -> None:
    target = ("--cluster", cluster, "--package", package, "--entrypoint", command)
    service.done("job", "create", name, *target, *options)


def forever(mark: str) -> str:
    """A command that ends only when it is ended; its process goes by the mark."""
    return f"bash -c 'exec -a muster-e2e-{mark} sleep infinity'"


def assert_nothing_runs(mark: str) -> None:
    wait_until(lambda: not _marked(mark), 5, lambda: _marked(mark))


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[:1] == [f"muster-e2e-{mark}"]:
                found.append(process)
    return found
