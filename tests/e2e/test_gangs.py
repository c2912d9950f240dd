"""Journeys of multi-task runs: all tasks or none, a log for each, and a start that is given back."""

import json
import shlex
from typing import Any

import pytest

from tests.builders.waiting import wait_until
from tests.e2e.support import Json, Service, assert_nothing_runs, forever, job_on

pytestmark = pytest.mark.ray

TELL = "env | grep -E '^(PAI|MUSTER)_' | sort"
TASKS = [("trainers", task) for task in range(3)] + [("helpers", task) for task in range(5)]
HOG = """python - <<'END'
import os, time
import ray

@ray.remote(num_cpus=1)
def hold(until):
    while not os.path.exists(until):
        time.sleep(0.05)

ray.init()
print("ready", flush=True)
while not os.path.exists("{start}"):
    time.sleep(0.02)
ray.get([hold.remote("{end}") for _ in range(2)])
END"""


def create(service: Service, name: str, target: Json, *groups: Json, **fields: Any) -> None:
    """Small tasks, several to a node: two cores are no place for eight nodes."""
    sized = [{"cpu": 0.1, "memory_gib": 0.1, **group} for group in groups]
    job = {"name": name, **target, "placement_strategy": "SPREAD", "task_groups": sized, **fields}
    file = service.folder / f"{name}.json"
    file.write_text(json.dumps(job))
    service.done("job", "create", "-f", file)


def three_and_five(command: str) -> list[Json]:
    return [
        {"name": "trainers", "count": 3, "entrypoint": command},
        {"name": "helpers", "count": 5, "entrypoint": command},
    ]


def log_of(service: Service, run: str, group: str, task: int) -> str:
    """To its end; the exit code is the run's."""
    return service.muster("run", "logs", "-f", run, "--task-group", group, "--task", task).out.strip()


def assert_each_task_told(service: Service, run: str) -> None:
    """R16-R21: its own place in the gang, and the same addresses to all."""
    addresses = set()
    for group, task in TASKS:
        told = dict(line.split("=", 1) for line in log_of(service, run, group, task).splitlines())
        index = ["trainers", "helpers"].index(group)
        assert (told["PAI_JOB_TASK_COUNT"], told["PAI_JOB_TASK_ROLE_COUNT"]) == ("8", "2")
        assert (told["PAI_CURRENT_TASK_ROLE_INDEX"], told["PAI_TASK_INDEX"]) == (str(index), str(task))
        assert told["PAI_CONTAINER_IP"] == told[f"PAI_CONTAINER_LIST_{index}_{task}"]
        assert (told["MUSTER_RUN_ID"], told["MUSTER_ATTEMPT"]) == (run, "1")
        addresses.add(tuple((name, ip) for name, ip in told.items() if name.startswith("PAI_CONTAINER_LIST_")))
    ((first, *rest),) = addresses
    assert len([first, *rest]) == 8


def assert_succeeded(service: Service, run: str) -> Json:
    said = service.muster("run", "wait", run)
    assert said.code == 0, said
    shown = service.show("run", run)
    assert (shown["state"], shown["end"]["code"], shown["failed_tasks"]) == ("SUCCEEDED", "ALL_TASKS_DONE", 0)
    assert [(one["name"], one["succeeded"]) for one in shown["task_groups"]] == [("trainers", 3), ("helpers", 5)]
    tasks = service.items("run", "tasks", run)
    assert [(one["group"], one["index"]) for one in tasks] == TASKS
    assert all(one["exit_code"] == 0 and one["started_at"] and one["ended_at"] and one["host_ip"] for one in tasks)
    return shown


class TestOnACluster:
    def test_each_task_has_its_place_its_variables_and_its_log(self, service: Service, cluster: str) -> None:
        create(service, "gang", {"run_mode": "cluster", "cluster": cluster}, *three_and_five(TELL))
        run = service.done("run", "submit", "gang")
        shown = assert_succeeded(service, run)
        assert [phase["name"] for phase in shown["phases"]] == ["queue", "environment", "gang", "running", "release"]
        assert all(phase["state"] in {"done", "active"} for phase in shown["phases"])
        assert shown["allocated_at"] == shown["started_at"]
        assert len({one["container_ip"] for one in service.items("run", "tasks", run)}) == 2
        assert_each_task_told(service, run)

    def test_one_failure_ends_it_and_is_named(self, service: Service, cluster: str) -> None:
        command = f"if [ $PAI_TASK_INDEX = 2 ]; then echo no luck; exit 5; fi; {forever('survivor')}"
        create(service, "gang-failing", {"run_mode": "cluster", "cluster": cluster}, *three_and_five(command)[:1])
        run = service.done("run", "submit", "gang-failing")
        said = service.muster("run", "wait", run)
        assert (said.code, "user/EXIT_NONZERO" in said.err) == (1, True), said
        end = service.show("run", run)["end"]
        assert (end["task_group"], end["task"], end["exit_code"]) == ("trainers", 2, 5)
        assert log_of(service, run, "trainers", 2) == "no luck"
        states = [one["state"] for one in service.items("run", "tasks", run)]
        assert states == ["STOPPED", "STOPPED", "FAILED"]
        assert_nothing_runs("survivor")

    def test_stop_ends_all_processes_of_all_tasks(self, service: Service, cluster: str) -> None:
        command = f"setsid {forever('gang')} & {forever('gang')}"
        create(service, "gang-endless", {"run_mode": "cluster", "cluster": cluster}, *three_and_five(command))
        run = service.done("run", "submit", "gang-endless")
        assert service.muster("run", "wait", run, "--for", "RUNNING").code == 0
        service.done("run", "stop", run)
        said = service.muster("run", "wait", run)
        assert (said.code, "stopped/BY_USER" in said.err) == (1, True), said
        assert_nothing_runs("gang")
        assert {one["state"] for one in service.items("run", "tasks", run)} == {"STOPPED"}

    def test_a_node_that_ends_under_it_is_no_fault_of_its_tasks(self, service: Service, cluster: str) -> None:
        """The guard of a local node ends the tasks there before Ray has noticed anything."""
        create(service, "gang-bereft", {"run_mode": "cluster", "cluster": cluster}, *three_and_five(forever("bereft")))
        run = service.done("run", "submit", "gang-bereft")
        assert service.muster("run", "wait", run, "--for", "RUNNING").code == 0
        service.kill_raylet("w-0")
        said = service.muster("run", "wait", run)
        assert (said.code, "lost/NODE_LOST" in said.err) == (1, True), said
        assert_nothing_runs("bereft")
        ends = {(one["state"], one["exit_code"] is None) for one in service.items("run", "tasks", run)}
        assert ends == {("FAILED", True), ("STOPPED", False)}

    def test_a_start_that_finds_no_room_is_given_back_and_comes_again(
        self, service: Service, cluster: str, package: str
    ) -> None:
        """What holds the room does so past Muster's ledger, and only once the gang is on its way."""
        start, end, ran = (service.folder / name for name in ("hog-start", "hog-end", "gang-ran"))
        job_on(service, "hog", cluster, package, HOG.format(start=start, end=end))
        hog = service.done("run", "submit", "hog")
        wait_until(lambda: "ready" in service.done("run", "logs", hog), 60)
        pair = {"name": "pair", "count": 2, "cpu": 1, "entrypoint": f"touch {shlex.quote(str(ran))}"}
        create(service, "crowded", {"run_mode": "cluster", "cluster": cluster}, pair, gang_timeout_s=10)
        run = service.done("run", "submit", "crowded")
        wait_until(lambda: service.show("run", run)["state"] == "STARTING", 30, lambda: service.why(run))
        start.touch()

        def is_given_back() -> bool:
            return bool(service.show("run", run)["attempts"][0]["end"])

        wait_until(is_given_back, 60, lambda: service.show("run", run))
        waits = [one["params"]["code"] for one in service.items("run", "events", run) if one["type"] == "WAITING"]
        assert "GANG_BACKOFF" in waits
        assert not ran.exists()
        end.touch()
        assert service.muster("run", "wait", run).code == 0
        shown = service.show("run", run)
        assert [one["end"]["code"] for one in shown["attempts"]] == ["GANG_TIMEOUT", "ALL_TASKS_DONE"]
        assert ran.exists()
        assert service.muster("run", "wait", hog).code == 0


def test_with_a_cluster_of_its_own(service: Service, stopped_cluster: str) -> None:
    del stopped_cluster  # two cores are no place for two clusters
    pool = {"run_mode": "on_demand", "resource_package": "default", "resource_group": "default"}
    nodes = {"head": {"cpu": 1, "memory_gib": 2}}
    nodes |= {"worker_groups": [{"name": "w", "cpu": 1, "memory_gib": 2, "min_instances": 2, "max_instances": 2}]}
    create(service, "own-gang", pool | nodes, *three_and_five(TELL))
    run = service.done("run", "submit", "own-gang")
    shown = assert_succeeded(service, run)
    names = [phase["name"] for phase in shown["phases"]]
    assert names == ["queue", "cluster", "nodes", "environment", "gang", "running", "release"]
    assert_each_task_told(service, run)
    wait_until(lambda: service.show("run", run)["attempts"][0]["state"] == "ENDED", 60)
