"""What a run's owner sees when the service is started again, and when nodes die under the run."""

import pytest

from tests.builders.waiting import wait_until
from tests.e2e.support import Service, assert_nothing_runs, forever, job_on

pytestmark = pytest.mark.ray

COUNTING = "for i in $(seq {count}); do echo $i; sleep 0.05; done"
HELD_BY_A_WORKER = """python - <<'END'
import os, pathlib, time
import ray

@ray.remote(max_retries=3)
def hold(gate):
    print("try", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.1)
    return ray.get_runtime_context().get_node_id()

ray.init()
print("held by", ray.get(hold.remote("{gate}")))
END"""


def test_a_run_goes_on_while_the_service_is_started_again(service: Service, cluster: str, package: str) -> None:
    job_on(service, "counting", cluster, package, COUNTING.format(count=200))
    with service.following("run", "submit", "counting", "--follow") as command:
        assert command.stdout is not None
        run = command.stdout.readline().strip()
        assert command.stdout.readline() == "1\n"
        assert service.stop() == 0
        service.start()
        log = command.stdout.read()
        assert command.wait() == 0, log
    whole = [str(number) for number in range(1, 201)]
    assert log.split() == whole[1:]
    assert service.done("run", "logs", "-f", run).split() == whole
    shown = service.show("run", run)
    assert [attempt["epoch"] for attempt in shown["attempts"]] == [1]


def test_a_lost_worker_is_replaced(service: Service, cluster: str, package: str) -> None:
    gate = service.folder / "gate"
    job_on(service, "holding", cluster, package, HELD_BY_A_WORKER.format(gate=gate))
    run = service.done("run", "submit", "holding")
    wait_until(lambda: "try" in service.done("run", "logs", run), 60)
    before = {node["id"] for node in service.show("cluster", cluster)["nodes"] if node["alive"]}
    for name in ("w-0", "w-1"):
        service.kill_node(name)
    gate.touch()
    said = service.muster("run", "wait", run)
    assert said.code == 0, said
    assert "held by" in service.done("run", "logs", "-f", run)

    def is_whole() -> bool:
        alive = {node["id"] for node in service.show("cluster", cluster)["nodes"] if node["alive"]}
        return len(alive) == len(before) and len(alive & before) == 1  # the head

    wait_until(is_whole, 90, lambda: service.show("cluster", cluster))


def test_a_cluster_is_taken_away_from_its_runs_only_by_force(service: Service, cluster: str, package: str) -> None:
    job_on(service, "evicted", cluster, package, f"echo so far; {forever('evicted')}")
    run = service.done("run", "submit", "evicted")
    wait_until(lambda: "so far" in service.done("run", "logs", run), 60)
    refused = service.muster("cluster", "stop", cluster)
    assert (refused.code, refused.err.split(": ")[1]) == (6, "CLUSTER_HAS_ACTIVE_RUNS")
    service.done("cluster", "stop", cluster, "--force")
    said = service.muster("run", "wait", run)
    assert said.code == 1
    assert "ended: STOPPED  stopped/FORCED" in said.err
    assert_nothing_runs("evicted")
    assert service.muster("run", "logs", "-f", run).out == "so far\n"


def test_a_lost_head_ends_its_runs(service: Service, cluster: str, package: str) -> None:
    job_on(service, "doomed", cluster, package, f"echo so far; {forever('doomed')}")
    run = service.done("run", "submit", "doomed")
    wait_until(lambda: "so far" in service.done("run", "logs", run), 60)
    service.kill_node("head")
    said = service.muster("run", "wait", run)
    assert said.code == 1
    assert "ended: FAILED  lost/HEAD_LOST" in said.err
    assert "so far" in said.err
    assert_nothing_runs("doomed")
    shown = service.show("cluster", cluster)
    assert shown["state"] == "FAILED"
    assert shown["state_reason"]["detail"]
    assert service.muster("run", "logs", "-f", run).out == "so far\n"
