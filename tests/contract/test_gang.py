"""Jobs of tasks on real Ray: all or nothing, everywhere the same variables, the right end, and nobody left (R3-R33)."""

import io
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rayjobs.dispatch import EXIT_GUARD_LOST, EXIT_MAX_RUNTIME
from rayjobs.runner.spec import EXIT_GANG_TIMEOUT, EXIT_RUNNER_FAILED, EXIT_TASK_LOST
from tests.builders.leaky import Leak, a_leak
from tests.builders.waiting import wait_until
from tests.conftest import lacking
from tests.contract.gang_host import Gang, GangHost, a_group, gang_host
from tests.contract.local_lab import small_group

pytestmark = pytest.mark.ray
NODES = 4
GONE_WITHIN_S = 10
FOREVER = "sleep 300"
TRAIN = Path(__file__).parents[2] / "docs" / "demo" / "ddp" / "train.py"
PYTHON_WITH_TORCH = "/usr/bin/python3"
"""Debian's, of the package python3-torch."""

SAYS_ITS_VARIABLES = """env -0 | grep -z -E '^(PAI|MUSTER)_' | tr '\\0' '\\n'"""
# Ray refuses keys that the job's own runtime_env has as well.
JOINS = """cat data.txt; python3 - <<'END'
import os, ray
ray.init(runtime_env={{"py_modules": ["{module}"], "env_vars": {{"RAY_JOB_STOP_WAIT_TIME_S": "1"}}}})
see = ray.remote(num_cpus=0)(lambda: [os.environ["GIVEN"], open("data.txt").read(), os.environ["PYTHONPATH"]])
print("gpus:", ray.cluster_resources()["GPU"], "seen:", *ray.get(see.remote()))
END"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangHost]:
    workers = small_group(cpu=4, gpu=4, gpu_type="A100", min_instances=NODES, max_instances=NODES)
    with gang_host(tmp_path_factory.mktemp("gang"), workers) as started:
        yield started


def leaky(host: GangHost, leaks: list[Leak], **fields: Any) -> Gang:
    groups = [a_group(leak.command(FOREVER), name=f"g{at}") for at, leak in enumerate(leaks)]
    gang = Gang(host, *groups, **{"placement_strategy": "STRICT_SPREAD", **fields})
    gang.wait_until(lambda: all(leak.all_started() for leak in leaks))
    return gang


def assert_gone(host: GangHost, leaks: list[Leak]) -> None:
    wait_until(
        lambda: not any(leak.survivors() for leak in leaks), GONE_WITHIN_S, lambda: [one.survivors() for one in leaks]
    )
    wait_until(lambda: host.used_cpus() == 0 and not host.groups_held(), GONE_WITHIN_S, host.groups_held, every_s=0.2)


class TestTasks:
    def test_know_themselves_and_all_others(self, host: GangHost) -> None:
        """R15-R23."""
        gang = Gang(host, a_group(SAYS_ITS_VARIABLES, 3, "TaskG1"), a_group(SAYS_ITS_VARIABLES, 5, "TaskG2"))
        assert gang.wait_ended()["code"] == "ALL_TASKS_DONE"
        everybody = [(group, task) for group, tasks in ((0, 3), (1, 5)) for task in range(tasks)]
        ips = {f"PAI_CONTAINER_LIST_{group}_{task}": gang.placed(group, task)["ip"] for group, task in everybody}
        assert len(set(ips.values())) == NODES
        for rank, (group, task) in enumerate(everybody):
            seen = dict(line.split("=", 1) for line in gang.log(group, task).splitlines())
            ip = gang.placed(group, task)["ip"]
            folder = gang.folder(ip) / f"TaskG{group + 1}-{task}"
            del seen["MUSTER_GUARD"]
            assert seen == ips | {
                "PAI_JOB_TASK_COUNT": "8",
                "PAI_JOB_TASK_ROLE_COUNT": "2",
                "PAI_CURRENT_TASK_ROLE_INDEX": str(group),
                "PAI_TASK_INDEX": str(task),
                "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(task),
                "PAI_CONTAINER_IP": ip,
                "PAI_CONTAINER_HOST_IP": ip,
                "PAI_BOOTSTRAP_PATH": str((folder / "pai_bootstrap.sh").resolve()),
                "MUSTER_RUN_ID": gang.spec.run_id,
                "MUSTER_ATTEMPT": "1",
                "MUSTER_GLOBAL_RANK": str(rank),
            }
            assert SAYS_ITS_VARIABLES in (folder / "pai_bootstrap.sh").read_text()

    def test_are_told_of_as_they_go(self, host: GangHost) -> None:
        gang = Gang(host, a_group("echo héllo; exit 3", gpu=2, gpu_type="A100"))
        verdict = gang.wait_ended()
        assert [event["type"] for event in gang.events()] == [
            "gang_waiting",
            "task_placed",
            "gang_allocated",
            "task_started",
            "task_ended",
            "verdict",
        ]
        assert gang.ends() == {(0, 0): ("exited", 3)}
        assert (
            verdict.items()
            >= {"end_class": "user", "code": "EXIT_NONZERO", "exit_code": 3, "group": 0, "task": 0}.items()
        )
        assert gang.info()["driver_exit_code"] == 3
        answer = host.http.get(f"{gang.placed()['agent']}/logs/muster/{gang.id}/g-0.log", headers={"Range": "bytes=1-"})
        assert (answer.status_code, answer.text) == (httpx.codes.PARTIAL_CONTENT, "éllo\n")

    def test_have_their_own_gpus_and_the_package_and_join_the_cluster(self, host: GangHost, tmp_path: Path) -> None:
        module = tmp_path / "their_module"
        module.mkdir()
        (module / "__init__.py").touch()
        environment = {"working_dir": host.put_package("data.zip", a_zip("data.txt", "5")), "env_vars": {"GIVEN": "1"}}
        command = 'echo "gpus $CUDA_VISIBLE_DEVICES"; ' + JOINS.format(module=module)
        both = a_group(command, 2, gpu=2, gpu_type="A100")
        gang = Gang(host, both, environment=environment, placement_strategy="STRICT_PACK")
        assert gang.wait_ended()["code"] == "ALL_TASKS_DONE", gang.logs()
        assert {log.splitlines()[0] for log in gang.logs()} == {"gpus 0,1", "gpus 2,3"}
        for log in gang.logs():
            assert f"gpus: {4.0 * NODES} seen: 1 5 " in log
            assert "muster_runner" not in log


class TestTraining:
    @pytest.fixture
    def package(self, host: GangHost) -> str:
        if subprocess.run(
            [PYTHON_WITH_TORCH, "-c", "import torch.distributed"], capture_output=True, check=False
        ).returncode:
            lacking(f"torch for {PYTHON_WITH_TORCH} (the system package python3-torch)")
        return host.put_package("train.zip", a_zip(TRAIN.name, TRAIN.read_text()))

    def test_needs_no_other_command_for_other_counts(self, host: GangHost, package: str) -> None:
        """R33, R12."""
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        command = (
            f"{PYTHON_WITH_TORCH} {TRAIN.name} --world-size ${{PAI_JOB_TASK_COUNT}} --rank ${{PAI_TASK_INDEX}}"
            f" --dist-url tcp://${{PAI_CONTAINER_LIST_0_0}}:{port}"
        )
        for tasks, gpus in ((4, 4), (2, 2)):
            group = a_group(command, tasks, gpu=gpus, gpu_type="A100")
            gang = Gang(host, group, environment={"working_dir": package}, placement_strategy="STRICT_SPREAD")
            assert gang.wait_ended()["code"] == "ALL_TASKS_DONE", gang.logs()
            said = [f"rank {rank} of {tasks}, {gpus} GPUs, slope 3.00, same everywhere: True" for rank in range(tasks)]
            assert [log.splitlines()[-1] for log in gang.logs()] == said


class TestEnds:
    def test_by_one_failure_stop_all_others(self, host: GangHost, leaks: list[Leak]) -> None:
        """R30, and every process of every task is gone."""
        groups = [a_group(leak.command(FOREVER), name=f"g{at}") for at, leak in enumerate(leaks)]
        started = " ".join(str(leak.folder / "deaf.pid") for leak in leaks)
        gang = Gang(
            host, *groups, a_group(f"for file in {started}; do until [ -e $file ]; do sleep 0.1; done; done; exit 7")
        )
        verdict = gang.wait_ended()
        assert (verdict["code"], verdict["exit_code"], verdict["group"], verdict["task"]) == ("EXIT_NONZERO", 7, 2, 0)
        assert gang.info()["driver_exit_code"] == 7
        assert gang.ends() == {(0, 0): ("stopped", 143), (1, 0): ("stopped", 143), (2, 0): ("exited", 7)}
        assert not any(leak.survivors() for leak in leaks)
        assert_gone(host, leaks)

    def test_are_left_to_themselves_where_the_threshold_is_their_number(self, host: GangHost, tmp_path: Path) -> None:
        """R31."""
        go = tmp_path / "go"
        command = f"[ $PAI_TASK_INDEX = 2 ] || exit 3; until [ -e {go} ]; do sleep 0.1; done"
        gang = Gang(host, a_group(command, 4, min_failed=4))
        gang.wait_for("task_ended", 3)
        assert gang.info()["status"] == "RUNNING"
        go.touch()
        verdict = gang.wait_ended()
        assert (verdict["code"], verdict["exit_code"], gang.info()["status"]) == ("ALL_TASKS_DONE", 0, "SUCCEEDED")
        assert gang.ends() == {(0, task): ("exited", 0 if task == 2 else 3) for task in range(4)}

    def test_enough_successes_stop_the_rest(self, host: GangHost) -> None:
        """R28."""
        master = a_group("exit 0", name="master", min_succeeded=1)
        gang = Gang(host, master, a_group(FOREVER, 2, name="workers"))
        verdict = gang.wait_ended()
        assert (verdict["code"], verdict["params"]) == ("MIN_SUCCEEDED", {"task_group": "master", "succeeded": 1})
        assert gang.info()["status"] == "SUCCEEDED"
        assert {how for how, _ in gang.ends().values()} == {"exited", "stopped"}

    def test_come_when_the_time_is_up(self, host: GangHost) -> None:
        gang = Gang(host, a_group("trap 'exit 0' TERM; sleep 300 & wait", 2), max_runtime_s=2)
        verdict = gang.wait_ended()
        assert (verdict["end_class"], verdict["code"], verdict["exit_code"]) == (
            "timeout",
            "MAX_RUNTIME",
            EXIT_MAX_RUNTIME,
        )
        assert {how for how, _ in gang.ends().values()} == {"stopped"}


class TestRoom:
    def test_for_all_but_one_starts_nothing_and_is_given_back(self, host: GangHost, tmp_path: Path) -> None:
        """R7, R9."""
        gang = Gang(
            host, a_group(f"touch {tmp_path}/ran", NODES + 1), placement_strategy="STRICT_SPREAD", gang_timeout_s=3
        )
        verdict = gang.wait_ended()
        assert verdict["code"] == "GANG_TIMEOUT"
        assert verdict["params"] == {"missing": 1, "wanted": NODES + 1, "gang_timeout_s": 3}
        assert gang.info()["driver_exit_code"] == verdict["exit_code"] == EXIT_GANG_TIMEOUT
        assert [event["type"] for event in gang.events()] == ["gang_waiting", "verdict"]
        assert not list(tmp_path.iterdir())
        assert_gone(host, [])
        after = Gang(host, a_group("true", NODES, cpu=4), placement_strategy="STRICT_SPREAD")
        assert after.wait_ended()["code"] == "ALL_TASKS_DONE"

    def test_is_not_waited_for_after_a_stop(self, host: GangHost) -> None:
        gang = Gang(host, a_group("true", cpu=5), gang_timeout_s=600)
        gang.wait_for("gang_waiting")
        gang.stop()
        assert gang.wait_ended()["end_class"] == "stopped"
        assert gang.info()["status"] == "STOPPED"
        assert_gone(host, [])


class TestNobodyIsLeft:
    def test_after_a_stop(self, host: GangHost, leaks: list[Leak]) -> None:
        gang = leaky(host, leaks)
        gang.stop()
        assert gang.wait_ended()["end_class"] == "stopped"
        assert not any(leak.survivors() for leak in leaks)
        assert gang.info()["status"] == "STOPPED"
        assert gang.ends() == {(0, 0): ("stopped", 143), (1, 0): ("stopped", 143)}
        assert_gone(host, leaks)

    def test_when_the_runner_is_killed(self, host: GangHost, leaks: list[Leak]) -> None:
        gang = leaky(host, leaks)
        gang.driver().kill()
        assert_gone(host, leaks)

    def test_when_an_actor_is_killed(self, host: GangHost, leaks: list[Leak]) -> None:
        gang = leaky(host, leaks)
        gang.actor(1).kill()
        verdict = gang.wait_ended()
        assert (verdict["end_class"], verdict["code"], verdict["group"]) == ("lost", "NODE_LOST", 1)
        assert gang.info()["driver_exit_code"] == EXIT_TASK_LOST
        assert gang.ends() == {(0, 0): ("stopped", 143), (1, 0): ("lost", None)}
        assert_gone(host, leaks)

    def test_when_a_guard_is_killed(self, host: GangHost, tmp_path: Path) -> None:
        leak = a_leak(tmp_path / "pids", without="clean_environment")  # nothing tells whose that one is
        gang = Gang(host, a_group(leak.command(FOREVER)), a_group(FOREVER, name="other"))
        gang.wait_until(leak.all_started)
        gang.guard(0).kill()
        verdict = gang.wait_ended()
        assert (verdict["code"], verdict["exit_code"]) == ("RUNNER_FAILED", EXIT_GUARD_LOST)
        assert_gone(host, [leak])


class TestNodes:
    """They lose some, and come last."""

    def test_that_cannot_set_up_the_environment_end_the_job(self, host: GangHost) -> None:
        blocked = host.logs(host.nodes()[1].ip).parent / "runtime_resources" / "working_dir_files"
        kept = blocked.rename(blocked.with_name("kept"))
        blocked.touch()
        environment = {"working_dir": host.put_package("other.zip", a_zip("data.txt", "6"))}
        try:
            gang = Gang(host, a_group("true", NODES), environment=environment, placement_strategy="STRICT_SPREAD")
            verdict = gang.wait_ended()
        finally:
            blocked.unlink()
            kept.rename(blocked)
        assert (verdict["end_class"], verdict["code"]) == ("environment", "RUNTIME_ENV_FAILED")
        assert "working_dir_files" in verdict["params"]["message"]
        assert gang.events("task_started") == []
        assert gang.info()["driver_exit_code"] == EXIT_RUNNER_FAILED

    def test_lost_before_all_tasks_are_up_are_replaced(self, host: GangHost) -> None:
        gang = Gang(host, a_group("true", 2), placement_strategy="STRICT_SPREAD")
        gang.wait_until(lambda: host.groups_held() == ["CREATED"])
        (lost, *_) = host.ips_in_use()
        host.kill_node(lost)
        assert gang.wait_ended()["code"] == "ALL_TASKS_DONE"
        assert lost not in {event["ip"] for event in gang.events("task_placed")}

    def test_lost_end_the_job_whoever_notices_first(self, host: GangHost, leaks: list[Leak]) -> None:
        """Ray needs seconds to notice; a peer of the lost task fails at once, which is no fault of its own."""
        host.heal()
        pid = leaks[1].folder / "plain.pid"
        peer = f"until [ -e {pid} ]; do sleep 0.1; done; while [ -e /proc/$(cat {pid}) ]; do sleep 0.1; done; exit 9"
        groups = [
            a_group(leaks[0].command(FOREVER)),
            a_group(leaks[1].command(FOREVER), name="h"),
            a_group(peer, name="p"),
        ]
        gang = Gang(host, *groups, placement_strategy="STRICT_SPREAD")
        gang.wait_until(lambda: all(leak.all_started() for leak in leaks))
        host.kill_node(gang.placed(1)["ip"])
        verdict = gang.wait_ended()
        assert (verdict["end_class"], verdict["code"], verdict["group"]) == ("lost", "NODE_LOST", 1)
        assert verdict["exit_code"] == gang.info()["driver_exit_code"] == EXIT_TASK_LOST
        assert gang.ends() == {(0, 0): ("stopped", 143), (1, 0): ("lost", None), (2, 0): ("exited", 9)}
        assert_gone(host, leaks)


def a_zip(name: str, content: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, content)
    return packed.getvalue()
