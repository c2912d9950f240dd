"""One service and one cluster for all journeys: starting Ray is most of what they cost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.waiting import wait_until
from tests.e2e.support import Service, running

SAMPLE = Path(__file__).parents[2] / "docs" / "demo" / "sample"
CLUSTER = "lab"
NODES = 3
"""Its head and two workers."""
UP_TIMEOUT_S = 120
DOWN_TIMEOUT_S = 60


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    soon = {"MUSTER_RETRY_BACKOFF_MIN_S": "1", "MUSTER_RETRY_BACKOFF_MAX_S": "2"}
    with running(Service(tmp_path_factory.mktemp("muster"), **soon)) as service:
        yield service


@pytest.fixture(scope="session")
def package(service: Service) -> str:
    """The sample of the demo, packed by the command line."""
    return service.done("package", "upload", SAMPLE, "-o", "name")


@pytest.fixture(scope="session")
def made_cluster(service: Service) -> str:
    workers = "name=w,cpu=1,memory_gib=2,min_instances=2,max_instances=2"
    service.done("cluster", "create", CLUSTER, "--head", "cpu=1,memory_gib=4", "--worker", workers)
    return CLUSTER


@pytest.fixture
def cluster(service: Service, made_cluster: str) -> str:
    """Up and healthy, whatever the test before did to it."""
    if service.show("cluster", made_cluster)["state"] != "RUNNING":
        service.done("cluster", "start", made_cluster)

    def is_up() -> bool:
        seen = service.show("cluster", made_cluster)
        return bool(seen["health"]["status"] == "HEALTHY" and sum(node["alive"] for node in seen["nodes"]) == NODES)

    wait_until(is_up, UP_TIMEOUT_S, lambda: service.show("cluster", made_cluster))
    return made_cluster


@pytest.fixture
def stopped_cluster(service: Service, made_cluster: str) -> str:
    """Of one that failed, too, the resource group gets its room back only when somebody stops it."""

    def is_down() -> bool:
        return service.show("cluster", made_cluster)["state"] in {"CREATED", "STOPPED"}

    if not is_down():
        service.done("cluster", "stop", made_cluster, "--force")
        wait_until(is_down, DOWN_TIMEOUT_S, lambda: service.show("cluster", made_cluster))
    return made_cluster
