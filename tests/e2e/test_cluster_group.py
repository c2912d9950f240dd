"""The journey of a run in a cluster group: the policy picks, and says why."""

import pytest

from tests.e2e.support import Service

pytestmark = pytest.mark.ray


def test_the_first_member_that_can_takes_the_run(service: Service, cluster: str, package: str) -> None:
    service.done("cluster", "create", "asleep", "--head", "cpu=1,memory_gib=2", "--worker", "name=w,cpu=1,memory_gib=2")
    members = ("--member", "asleep", "--member", cluster)
    service.done("group", "create", "pair", *members, "--preset", "failover")
    entrypoint = "python main.py --config config.yaml"
    service.done("job", "create", "either", "--cluster-group", "pair", "--package", package, "--entrypoint", entrypoint)
    said = service.muster("run", "submit", "either", "--follow")
    assert said.code == 0, said
    run_id, *log = said.out.splitlines()
    assert log[-1] == "10 tasks ran on 2 nodes"
    run = service.show("run", run_id)
    assert (run["run_mode"], run["cluster_group"], run["cluster"]) == ("cluster_group", "pair", cluster)
    assert [phase["name"] for phase in run["phases"]] == ["queue", "environment", "running", "release"]
    decision = service.why(run_id)["decisions"][-1]
    assert (decision["outcome"], decision["chosen"]) == ("dispatched", cluster)
    reasons = {one["cluster"]: one["reason"] for one in decision["candidates"]}
    assert reasons == {"asleep": "CLUSTER_NOT_RUNNING", cluster: None}
    told = service.done("run", "why", run_id)
    assert "asleep" in told
    assert "CLUSTER_NOT_RUNNING" in told
    assert service.done("run", "logs", run_id).splitlines() == log


def test_a_group_without_a_member_that_runs(service: Service, package: str) -> None:
    service.done("group", "create", "nobody")
    service.done("job", "create", "homeless", "--cluster-group", "nobody", "--package", package, "--entrypoint", "true")
    run = service.done("run", "submit", "homeless")
    assert service.muster("run", "wait", run, "--for", "WAITING").code == 0
    assert "GROUP_EMPTY" in service.done("run", "why", run)
    service.done("run", "stop", run)
    assert service.show("run", run)["state"] == "STOPPED"
