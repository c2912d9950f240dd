"""A local Ray cluster for jobs of tasks, and such a job put to it past Muster: through Ray's own Jobs API."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from cluster_groups.backends.local_state import LocalNode
from cluster_groups.model.cluster import ClusterSpec, Endpoint, WorkerGroup
from rayjobs.dispatch import attempt_runtime_env, entrypoint, runner_package
from rayjobs.runner.spec import GroupSpec, RunnerSpec
from tests.builders.waiting import wait_until
from tests.contract.local_lab import Lab, bring_up, local_lab, small_spec

CLUSTER = "clu_gang"
GRACE_S = 1
TIMEOUT_S = 90
_ENDED = {"SUCCEEDED", "FAILED", "STOPPED"}
_numbers = itertools.count(1)


def a_group(command: str, tasks: int = 1, name: str = "g", **fields: Any) -> GroupSpec:
    fields = {"cpu": 1, "memory_bytes": 10_000_000, "gpu": 0, "gpu_type": None, **fields}
    return GroupSpec(name=name, tasks=tasks, command=command, **fields)


class GangHost:
    def __init__(self, lab: Lab, runner: asyncio.Runner, *groups: WorkerGroup) -> None:
        self.lab = lab
        self._runner = runner
        self._spec: ClusterSpec = small_spec(CLUSTER, *groups)
        endpoint = self.heal()
        self.http = httpx.Client(
            base_url=endpoint.address,
            headers={"Authorization": f"Bearer {endpoint.token}"},
            timeout=30,
            trust_env=False,
        )

    def heal(self) -> Endpoint:
        """Put back the nodes that a test took away."""
        endpoint = self._runner.run(bring_up(self.lab.backend(), self._spec)).endpoint
        assert endpoint
        return endpoint

    def put_package(self, name: str, data: bytes) -> str:
        if self.http.get(f"/api/packages/gcs/{name}").status_code == httpx.codes.NOT_FOUND:
            self.http.put(f"/api/packages/gcs/{name}", content=data).raise_for_status()
        return f"gcs://{name}"

    def nodes(self) -> tuple[LocalNode, ...]:
        return tuple(LocalNode(**row) for row in self.lab.state(CLUSTER)["nodes"])

    def logs(self, ip: str) -> Path:
        (folder,) = (node.folder for node in self.nodes() if node.ip == ip)
        assert folder
        return Path(folder) / "session_latest" / "logs"

    def processes(self, ip: str, named: str = "") -> list[psutil.Process]:
        (node,) = (psutil.Process(node.pid) for node in self.nodes() if node.ip == ip)
        return [one for one in (node, *node.children(recursive=True)) if " ".join(one.cmdline()).startswith(named)]

    def kill_node(self, ip: str) -> None:
        """As if its machine were gone, but for what has left the tree of its processes."""
        for process in self.processes(ip):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def ips_in_use(self) -> list[str]:
        """Nodes that hold a bundle."""
        held = [row for row in self._rows("placement_groups") if row["state"] != "REMOVED"]
        ips = {row["node_id"]: row["node_ip"] for row in self._rows("nodes")}
        return [ips[bundle["node_id"]] for row in held for bundle in row["bundles"] if bundle["node_id"]]

    def groups_held(self) -> list[str]:
        """States of the placement groups that hold or want room."""
        return [row["state"] for row in self._rows("placement_groups") if row["state"] != "REMOVED"]

    def used_cpus(self) -> float:
        rows = self.http.get("/nodes?view=summary").json()["data"]["nodeLogicalResources"]
        lines = [line for text in rows.values() for line in text.splitlines() if line.endswith(" CPU")]
        return sum(float(line.partition("/")[0]) for line in lines)

    def _rows(self, kind: str) -> list[dict[str, Any]]:
        return list(self.http.get(f"/api/v0/{kind}?detail=true").json()["data"]["result"]["result"])


class Gang:
    """A submitted job of tasks. `environment` is the user's runtime_env."""

    def __init__(
        self, host: GangHost, *groups: GroupSpec, environment: Mapping[str, Any] | None = None, **fields: Any
    ) -> None:
        self.host = host
        self.id = f"run_{next(_numbers)}-a1"
        fields = {"placement_strategy": "SPREAD", "stop_grace_s": GRACE_S, "gang_timeout_s": 60, **fields}
        self.spec = RunnerSpec(submission_id=self.id, run_id=self.id[:-3], attempt=1, groups=groups, **fields)
        package = runner_package()
        host.put_package(package.name, package.data)
        job = {
            "submission_id": self.id,
            "entrypoint": entrypoint(self.spec, package),
            "runtime_env": attempt_runtime_env(environment or {}, self.spec, package),
        }
        host.http.post("/api/jobs/", json=job).raise_for_status()

    def info(self) -> dict[str, Any]:
        return dict(self.host.http.get(f"/api/jobs/{self.id}").raise_for_status().json())

    def stop(self) -> None:
        self.host.http.post(f"/api/jobs/{self.id}/stop").raise_for_status()

    def folder(self, ip: str) -> Path:
        return self.host.logs(ip) / "muster" / self.id

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        file = self.folder(self.host.nodes()[0].ip) / "events.jsonl"
        events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [event for event in events if kind in {"", event["type"]}]

    def placed(self, group: int = 0, task: int = 0) -> dict[str, Any]:
        (event,) = [one for one in self.events("task_placed") if (one["group"], one["task"]) == (group, task)]
        return event

    def wait_for(self, kind: str, count: int = 1) -> None:
        self.wait_until(lambda: len(self.events(kind)) >= count)

    def wait_until(self, true: Callable[[], bool]) -> None:
        """Seldom enough, that asking does not slow down what is waited for."""
        wait_until(true, TIMEOUT_S, self.story, every_s=0.2)

    def wait_ended(self) -> dict[str, Any]:
        """The verdict, once Ray says that the job is over."""
        self.wait_until(lambda: self.info()["status"] in _ENDED)
        *_, last = self.events()
        assert last["type"] == "verdict", self.story()
        return last

    def log(self, group: int = 0, task: int = 0) -> str:
        name = f"{self.spec.groups[group].name}-{task}.log"
        return (self.folder(self.placed(group, task)["ip"]) / name).read_text()

    def logs(self) -> list[str]:
        return [self.log(one["group"], one["task"]) for one in self.events("task_placed")]

    def driver_log(self) -> str:
        return (self.host.logs(self.host.nodes()[0].ip) / f"job-driver-{self.id}.log").read_text()

    def driver(self) -> psutil.Process:
        payload = entrypoint(self.spec, runner_package()).rpartition(" ")[2]
        (found,) = [one for one in psutil.process_iter(["cmdline"]) if payload in (one.info["cmdline"] or ())]
        return found

    def actor(self, group: int) -> psutil.Process:
        """Of the group's only task."""
        (found,) = self.host.processes(self.placed(group)["ip"], "ray::TaskActor")
        return found

    def guard(self, group: int) -> psutil.Process:
        """Bash is its child."""
        own = self.folder(self.placed(group)["ip"]) / f"{self.spec.groups[group].name}-0" / "guard.jsonl"
        started = next(
            event for event in map(json.loads, own.read_text().splitlines()) if event["type"] == "task_started"
        )
        guard = psutil.Process(started["pid"]).parent()
        assert guard
        return guard

    def ends(self) -> dict[tuple[int, int], tuple[str, int | None]]:
        return {(one["group"], one["task"]): (one["how"], one["exit_code"]) for one in self.events("task_ended")}

    def story(self) -> str:
        """Everything there is to say when a test fails."""
        return "\n".join([str(self.info()), *map(str, self.events()), self.driver_log()])


@contextmanager
def gang_host(root: Path, *groups: WorkerGroup) -> Iterator[GangHost]:
    with asyncio.Runner() as runner, ExitStack() as ending:
        lab = local_lab(root)
        there = runner.run(lab.__aenter__())
        ending.callback(lambda: runner.run(lab.__aexit__(None, None, None)))
        host = GangHost(there, runner, *groups)
        ending.callback(host.http.close)
        yield host
