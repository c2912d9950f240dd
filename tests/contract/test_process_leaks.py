"""The runner on real Ray, and the process-leak table of design.md §3.6: no process outlives its run by 5 s.

A plain job's driver runs on the head unless it asks for resources; the jobs here that run on workers do so by asking.
The tests stand in the order of the table: the later ones take nodes away.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rayjobs.dispatch import RunnerSpec, attempt_runtime_env, entrypoint, runner_package
from tests.builders.leaky import Leak, a_leak
from tests.builders.waiting import wait_until
from tests.contract.ray_host import RayHost, ray_host

pytestmark = pytest.mark.ray
WITHIN_S = 5
GRACE_S = 1
TERMINATED = 143
KILLED = 137


# Ray refuses keys that the job's own runtime_env has as well.
JOINS = """python3 - <<'END'
import os, ray
ray.init(runtime_env={{"py_modules": ["{module}"], "env_vars": {{"RAY_JOB_STOP_WAIT_TIME_S": "1"}}}})
print("seen:", ray.get(ray.remote(lambda: os.environ.get("PYTHONPATH", "")).remote()))
END"""


class Job:
    """A submitted job whose leaky children all run; `node` 0 is the head, 1 … the workers."""

    def __init__(self, host: RayHost, leak: Leak, node: int, then: str = "sleep 300") -> None:
        self.host = host
        self.leak = leak
        self.folder = host.folders[node] / "session_latest" / "logs" / "muster" / leak.mark
        spec = RunnerSpec(
            submission_id=leak.mark, run_id="run_1", attempt=1, command=leak.command(then), stop_grace_s=GRACE_S
        )
        self._entrypoint = entrypoint(spec, runner_package())
        host.put_package(runner_package().name, runner_package().data)
        host.submit(
            submission_id=leak.mark,
            entrypoint=self._entrypoint,
            runtime_env=attempt_runtime_env({}, spec, runner_package()),
            entrypoint_resources={f"worker{node}": 0.01} if node else None,
        )
        wait_until(leak.all_started, 30, lambda: host.info(leak.mark))

    def runner(self) -> psutil.Process:
        """Its guard has the same command line, but another name."""
        payload = self._entrypoint.rpartition(" ")[2]
        (found,) = [
            one
            for one in psutil.process_iter(["name", "cmdline"])
            if payload in (one.info["cmdline"] or ()) and one.info["name"] != "muster-guard"
        ]
        return found

    def supervisor(self) -> psutil.Process:
        return _parent(self.runner())

    def raylet(self) -> psutil.Process:
        return _parent(self.supervisor())

    def event(self, kind: str) -> dict[str, Any]:
        lines = map(json.loads, (self.folder / "events.jsonl").read_text().splitlines())
        (only,) = [event for event in lines if event["type"] == kind]
        return dict(only)

    def assert_gone(self) -> None:
        wait_until(lambda: self.leak.survivors() == {}, WITHIN_S, self.leak.survivors)


@pytest.fixture(scope="module")
def host() -> Iterator[RayHost]:
    with ray_host(workers=2) as started:
        yield started


@pytest.fixture
def leak(tmp_path: Path) -> Iterator[Leak]:
    made = a_leak(tmp_path / "pids")
    yield made
    made.end()


class TestWhileTheClusterLives:
    def test_the_command_ends(self, host: RayHost, leak: Leak) -> None:
        Job(host, leak, node=0, then="sleep 1; exit 7")
        ended = host.wait_ended(leak.mark)
        assert leak.survivors() == {}
        assert (ended["status"], ended["driver_exit_code"]) == ("FAILED", 7)

    def test_the_job_is_stopped(self, host: RayHost, leak: Leak) -> None:
        job = Job(host, leak, node=0)
        host.stop_job(leak.mark)
        assert host.wait_ended(leak.mark)["status"] == "STOPPED"
        assert leak.survivors() == {}
        assert (job.event("verdict")["reason"], job.event("task_ended")["exit_code"]) == ("STOPPED", TERMINATED)

    def test_the_runner_is_killed(self, host: RayHost, leak: Leak) -> None:
        job = Job(host, leak, node=0)
        job.runner().kill()
        job.assert_gone()
        assert host.wait_ended(leak.mark)["status"] == "FAILED"
        assert (job.event("verdict")["reason"], job.event("task_ended")["exit_code"]) == ("PARENT_LOST", TERMINATED)

    def test_the_users_shell_is_killed(self, host: RayHost, leak: Leak) -> None:
        job = Job(host, leak, node=0)
        psutil.Process(job.event("task_started")["pid"]).kill()
        job.assert_gone()
        assert host.wait_ended(leak.mark)["driver_exit_code"] == KILLED

    def test_the_supervisor_is_killed(self, host: RayHost, leak: Leak) -> None:
        job = Job(host, leak, node=0)
        job.supervisor().kill()
        job.assert_gone()
        assert job.event("task_ended")["exit_code"] == TERMINATED


class TestWhatMusterReads:
    def test_events_come_by_range_from_the_nodes_agent(self, host: RayHost, leak: Leak) -> None:
        Job(host, leak, node=1, then="sleep 1")
        agent = host.wait_ended(leak.mark)["driver_agent_http_address"]
        address = f"{agent}/logs/muster/{leak.mark}/events.jsonl"
        headers = {"Authorization": f"Bearer {host.token}", "Range": "bytes=1-"}
        answer = httpx.get(address, headers=headers, trust_env=False)
        started, *_, verdict = ("{" + answer.text).splitlines()
        assert answer.status_code == httpx.codes.PARTIAL_CONTENT
        assert (json.loads(started)["type"], json.loads(verdict)["type"]) == ("task_started", "verdict")
        assert json.loads(started)["ip"] == "127.0.0.2"


class TestTheUsersDriver:
    def test_joins_the_cluster_and_meets_nothing_of_ours(self, host: RayHost, tmp_path: Path) -> None:
        module = tmp_path / "their_module"
        module.mkdir()
        (module / "__init__.py").touch()
        spec = RunnerSpec(submission_id="joins", run_id="run_1", attempt=1, command=JOINS.format(module=module))
        package = runner_package()
        host.put_package(package.name, package.data)
        host.submit(
            submission_id="joins",
            entrypoint=entrypoint(spec, package),
            runtime_env=attempt_runtime_env({}, spec, package),
        )
        ended = host.wait_ended("joins")
        log = (host.folders[0] / "session_latest" / "logs" / "job-driver-joins.log").read_text()
        assert ended["status"] == "SUCCEEDED", log
        assert ended["job_id"] == ended["driver_info"]["id"]
        assert "muster_runner" not in log.rpartition("seen:")[2]


class TestWhenNodesDie:
    def test_a_raylet_is_killed(self, host: RayHost, leak: Leak) -> None:
        job = Job(host, leak, node=1)
        job.raylet().kill()
        job.assert_gone()
        assert job.event("task_ended")["exit_code"] == TERMINATED

    def test_the_head_is_killed(self, host: RayHost, leak: Leak, tmp_path: Path) -> None:
        on_worker = a_leak(tmp_path / "on_worker")
        try:
            here, there = Job(host, leak, node=0), Job(host, on_worker, node=2)
            raylet = there.raylet()
            host.nodes[0].kill()
            here.assert_gone()
            assert here.event("task_ended")["exit_code"] == TERMINATED
            raylet.wait(timeout=60)  # it looks for its head until Ray's reconnect time is over
            there.assert_gone()
        finally:
            on_worker.end()


def _parent(process: psutil.Process) -> psutil.Process:
    parent = process.parent()
    assert parent is not None
    return parent
