"""Journeys of runs on a cluster that is named."""

import signal
from itertools import pairwise

import pytest

from tests.e2e.support import Json, Service, assert_nothing_runs, forever, job_on

pytestmark = pytest.mark.ray

SAMPLE = "python main.py --config config.yaml"


def test_a_run_waits_for_its_cluster_and_then_goes_by_itself(
    service: Service, stopped_cluster: str, package: str
) -> None:
    service.done("job", "create", "patient", "--cluster", stopped_cluster, "--package", package, "--entrypoint", SAMPLE)
    run = service.done("run", "submit", "patient")
    assert service.muster("run", "wait", run, "--timeout", "1").code == 124
    why = service.done("run", "why", run)
    assert why.startswith("WAITING  CLUSTER_NOT_RUNNING: ")
    assert "whose move it is: yours" in why
    assert "what would help: " in why
    service.done("cluster", "start", stopped_cluster)
    waited = service.muster("run", "wait", run)
    assert waited.code == 0, waited
    assert service.done("run", "logs", "-f", run).endswith("10 tasks ran on 2 nodes")
    decisions = service.why(run)["decisions"]
    assert [decision["outcome"] for decision in decisions[:1] + decisions[-1:]] == ["waiting", "dispatched"]
    assert decisions[-1]["chosen"] == stopped_cluster


class TestFollow:
    def test_success(self, service: Service, cluster: str, package: str) -> None:
        service.done("job", "create", "sample", "--cluster", cluster, "--package", package, "--entrypoint", SAMPLE)
        said = service.muster("run", "submit", "sample", "--follow")
        assert said.code == 0, said
        run_id, *log = said.out.splitlines()
        assert log[-1] == "10 tasks ran on 2 nodes"
        assert "RUNNING" in said.err
        assert f"{run_id} ended: SUCCEEDED" in said.err
        assert service.done("run", "logs", run_id).splitlines() == log
        run = service.show("run", run_id)
        assert (run["state"], run["cluster"], run["end"]["code"]) == ("SUCCEEDED", cluster, "ALL_TASKS_DONE")
        assert_phases(run, "queue", "environment", "running", "release")
        types = [event["type"] for event in service.items("run", "events", run_id)]
        assert [one for one in types if not one.startswith("ATTEMPT_")] == [
            "SUBMITTED", "STARTING", "RUNNING", "SUCCEEDED",
        ]  # fmt: skip

    def test_a_command_that_fails(self, service: Service, cluster: str, package: str) -> None:
        job_on(service, "failing", cluster, package, "echo about to fail; exit 3")
        said = service.muster("run", "submit", "failing", "--follow")
        assert said.code == 1
        assert said.out.endswith("about to fail\n")
        assert "ended: FAILED  user/EXIT_NONZERO  exit code 3" in said.err
        assert "hint: " in said.err
        assert f"next: muster run why {said.out.splitlines()[0]}" in said.err

    def test_ctrl_c_leaves_the_run(self, service: Service, cluster: str, package: str) -> None:
        job_on(service, "left", cluster, package, f"echo here; {forever('left')}")
        with service.following("run", "submit", "left", "--follow") as command:
            assert command.stdout is not None
            run = command.stdout.readline().strip()
            assert command.stdout.readline() == "here\n"
            command.send_signal(signal.SIGINT)
            _, told = command.communicate(timeout=30)
        assert command.returncode == 130
        assert f"detached; {run} goes on" in told
        assert service.show("run", run)["state"] == "RUNNING"
        service.done("run", "stop", run)
        assert service.muster("run", "wait", run).code == 1
        assert_nothing_runs("left")


def test_wait_tells_the_reason_and_the_last_lines(service: Service, cluster: str, package: str) -> None:
    job_on(service, "loud", cluster, package, "seq 100; exit 7")
    run = service.done("run", "submit", "loud")
    said = service.muster("run", "wait", run)
    assert said.code == 1
    assert "user/EXIT_NONZERO  exit code 7" in said.err
    assert "last lines of its log:\n" in said.err
    assert "\n99\n100\n" in said.err


def test_stop_ends_all_its_processes(service: Service, cluster: str, package: str) -> None:
    job_on(service, "endless", cluster, package, f"setsid {forever('endless')} & {forever('endless')}")
    run = service.done("run", "submit", "endless")
    assert service.muster("run", "wait", run, "--for", "RUNNING").code == 0
    service.done("run", "stop", run)
    waited = service.muster("run", "wait", run)
    assert waited.code == 1
    assert "ended: STOPPED  stopped/BY_USER" in waited.err
    assert service.show("run", run)["stop_requested_by"] == "admin"
    assert_nothing_runs("endless")
    assert service.muster("run", "stop", run).code == 0, "of an ended run: unchanged"


def test_max_runtime(service: Service, cluster: str, package: str) -> None:
    job_on(service, "overlong", cluster, package, forever("overlong"), "--max-runtime-s", "2")
    run = service.done("run", "submit", "overlong")
    assert service.muster("run", "wait", run).code == 1
    shown = service.show("run", run)
    assert (shown["state"], shown["end"]["class"], shown["end"]["code"]) == ("FAILED", "timeout", "MAX_RUNTIME")
    assert_nothing_runs("overlong")


def assert_phases(run: Json, *names: str) -> None:
    """All of them over, each where the one before ended."""
    assert [phase["name"] for phase in run["phases"]] == list(names)
    assert all(phase["ended_at"] for phase in run["phases"][:-1])
    for before, after in pairwise(run["phases"]):
        assert before["ended_at"] == after["started_at"]
