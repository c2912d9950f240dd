"""Journeys of runs whose cluster is made for them: however they end, nothing of it is left (R35)."""

import pytest

from tests.builders.waiting import wait_until
from tests.contract.local_lab import nothing_left_of
from tests.e2e.support import Json, Service, assert_nothing_runs, forever

pytestmark = pytest.mark.ray

NODES = ("--mode", "on_demand", "--head", "cpu=1,memory_gib=2", "--worker", "name=w,cpu=1,memory_gib=2")
POOL = ("--resource-package", "default", "--resource-group", "default")
RELEASE_TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def _room(service: Service, stopped_cluster: str) -> None:
    """Two cores are no place for two clusters."""


def test_success(service: Service, package: str) -> None:
    create(service, "own", package, "python main.py --config config.yaml")
    with service.following("run", "submit", "own", "--follow") as command:
        folder = cluster_folder(service)
        out, told = command.communicate(timeout=150)
    assert command.returncode == 0, told
    run_id, *log = out.splitlines()
    assert log[-1] == "10 tasks ran on 1 nodes"
    assert "cluster  active" in told
    assert "nodes  done  2/2" in told
    run = released(service, run_id)
    names = [phase["name"] for phase in run["phases"]]
    assert names == ["queue", "cluster", "nodes", "environment", "running", "release"]
    assert all(phase["state"] == "done" for phase in run["phases"])
    assert run["cluster"].startswith("od-")
    assert nothing_left_of(folder)
    assert service.muster("cluster", "show", run["cluster"]).code == 3
    assert service.done("run", "logs", run_id).splitlines() == log


def test_failure(service: Service, package: str) -> None:
    create(service, "own-failing", package, f"setsid {forever('orphan')} & echo no luck; exit 4")
    run = service.done("run", "submit", "own-failing")
    folder = cluster_folder(service)
    said = service.muster("run", "wait", run)
    assert said.code == 1
    assert "user/EXIT_NONZERO  exit code 4" in said.err
    assert_nothing_runs("orphan")
    released(service, run)
    assert nothing_left_of(folder)
    assert service.done("run", "logs", run) == "no luck"


def test_stop_while_the_cluster_comes_up(service: Service, package: str) -> None:
    create(service, "own-stopped", package, forever("never"))
    run = service.done("run", "submit", "own-stopped")
    folder = cluster_folder(service)
    service.done("run", "stop", run)
    said = service.muster("run", "wait", run)
    assert said.code == 1
    assert "ended: STOPPED  stopped/BY_USER" in said.err
    released(service, run)
    assert nothing_left_of(folder)
    assert_nothing_runs("never")


def create(service: Service, name: str, package: str, command: str) -> None:
    service.done("job", "create", name, *NODES, *POOL, "--package", package, "--entrypoint", command)


def cluster_folder(service: Service) -> str:
    """Of the run's cluster, once its processes are on their way."""
    wait_until(lambda: bool(service.cluster_folders()), 30)
    (folder,) = service.cluster_folders()
    return folder


def released(service: Service, run_id: str) -> Json:
    wait_until(lambda: service.show("run", run_id)["attempts"][0]["state"] == "ENDED", RELEASE_TIMEOUT_S)
    return service.show("run", run_id)
