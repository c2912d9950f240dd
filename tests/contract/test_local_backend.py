"""The local backend against real Ray: own processes, own ports, own tokens, and nothing of it left in the end."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from cluster_groups.model.cluster import Observed, Phase
from tests.contract.local_lab import (
    Lab,
    bring_up,
    local_lab,
    nothing_left_of,
    processes_of,
    small_group,
    small_spec,
    take_down,
    until,
)

pytestmark = pytest.mark.ray

WHERE_TASKS_RUN = (
    "python -c \"import ray; ray.init(); print('ran on', ray.get(ray.remote(ray.util.get_node_ip_address).remote()))\""
)
LEAVING_THINGS = "setsid sleep 600 >/dev/null 2>&1 & mkdir -p locked/in && chmod 555 locked && pwd"
DETACHED = ["sleep", f"{os.getpid()}.611"]
DETACHING = f"""python - <<'END'
import subprocess, ray
ray.init()
run = ray.remote(subprocess.run)
ray.get(run.remote(["env", "-i", "sh", "-c", "setsid {" ".join(DETACHED)} >/dev/null 2>&1 &"]))
END"""
CRASHING_SERVICE = """
import asyncio, os, signal, sys
from pathlib import Path
from cluster_groups.backends import local_processes
from tests.contract.local_lab import Lab, small_group, small_spec

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def spawn_and_die(*arguments, spawn=local_processes.spawn):
    spawn(*arguments)
    die()

local_processes.spawn = {"before": die, "after": spawn_and_die}[sys.argv[2]]
asyncio.run(Lab(Path(sys.argv[1]), None).backend().start(small_spec("clu_c", small_group())))
"""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with local_lab(tmp_path / "clusters") as lab:
        yield lab


async def test_two_clusters_side_by_side_have_nothing_in_common(lab: Lab) -> None:
    backend = lab.backend()
    one, two = small_spec("clu_1", small_group()), small_spec("clu_2", small_group())
    first, second = await asyncio.gather(bring_up(backend, one), bring_up(backend, two))
    assert first.endpoint
    assert second.endpoint
    assert first.endpoint.address != second.endpoint.address
    folder = lab.state("clu_1")["folder"]
    assert f"{folder}/" in await lab.run_job(first.endpoint, "left", LEAVING_THINGS)
    refused = await lab.http.get(
        f"{first.endpoint.address}/api/jobs/", headers={"Authorization": f"Bearer {second.endpoint.token}"}
    )
    assert refused.status_code == 403
    assert "ran on 127.0.0.3" in await lab.run_job(first.endpoint, "where", WHERE_TASKS_RUN)

    assert any("sleep" in process.name() for process in processes_of(folder))
    await take_down(backend, "clu_1")

    assert nothing_left_of(folder)
    assert await backend.owned() == ["clu_2"]
    assert "ran on 127.0.0.3" in await lab.run_job(second.endpoint, "where", WHERE_TASKS_RUN)
    await take_down(backend, "clu_2")


async def test_nothing_that_a_task_detached_outlives_its_cluster(lab: Lab) -> None:
    observed = await bring_up(lab.backend(), small_spec("clu_d", small_group()))
    assert observed.endpoint
    head, worker = (psutil.Process(lab.pid("clu_d", node)) for node in ("head", "w-0"))
    await lab.run_job(observed.endpoint, "detaching", DETACHING)

    (detached,) = (process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == DETACHED)
    assert (detached.environ().get("RAY_AUTH_TOKEN_PATH"), detached.parent()) == (None, worker)
    await take_down(lab.backend(), "clu_d")
    assert not any(process.is_running() for process in (head, worker, detached))


async def test_a_new_service_adopts_what_a_crashed_one_left_and_mends_it(lab: Lab) -> None:
    for moment in ("before", "after"):  # the head was not started; then it was, but its pid was never noted
        _crash_while_starting_the_head(lab, moment)
    assert lab.state("clu_c")["nodes"][0]["pid"] is None
    spec = small_spec("clu_c", small_group())

    await bring_up(lab.backend(), spec)
    state = lab.state("clu_c")
    assert state["starts"] == 3  # the head's two and the worker's one
    assert len(_guards(state["folder"])) == 2

    await _mends_its_worker(lab, lambda pid: os.kill(pid, signal.SIGKILL))
    await _mends_its_worker(lab, _terminate_raylet)  # `ray start --block` outlives that and says nothing

    os.kill(lab.pid("clu_c", "head"), signal.SIGKILL)
    broken = await until(lambda: _in_phase(lab, Phase.BROKEN), 5)
    assert broken.reason.code == "HEAD_LOST"
    await lab.backend().start(spec)
    assert (await lab.backend().observe("clu_c")).phase is Phase.BROKEN
    await take_down(lab.backend(), "clu_c")
    assert nothing_left_of(state["folder"])


async def test_a_port_that_is_busy_or_gets_lost_leads_to_another(lab: Lab) -> None:
    spec = small_spec("clu_p")
    with socket.create_server(("127.0.0.1", 0)) as busy:
        first = int(busy.getsockname()[1])
        backend = lab.backend(dashboard_ports=range(first, first + 50))
        await backend.start(spec)
        chosen = lab.state("clu_p")["dashboard_port"]
        assert chosen != first
        with socket.create_server(("127.0.0.1", chosen)):  # Ray has yet to start its dashboard
            observed = await bring_up(backend, spec)
    assert observed.endpoint
    assert observed.endpoint.address not in {f"http://127.0.0.1:{port}" for port in (first, chosen)}
    assert "here" in await lab.run_job(observed.endpoint, "job", "echo here")


async def test_a_node_that_cannot_start_breaks_the_cluster_and_says_why(lab: Lab) -> None:
    spec = small_spec("clu_b", labels={"rack": "no spaces, please"})
    await lab.backend().start(spec)
    broken = await until(lambda: _in_phase(lab, Phase.BROKEN, "clu_b"), 20)
    assert broken.reason.code == "NODE_PROCESS_EXITED"
    assert broken.reason.params["group"] == "head"
    assert broken.reason.params["exit_code"] == 1
    assert "label" in "\n".join(broken.reason.params["last_lines"]).lower()


async def test_a_cluster_stopped_while_it_starts_is_not_started_again_and_leaves_nothing(lab: Lab) -> None:
    backend, spec = lab.backend(), small_spec("clu_s")
    await backend.start(spec)
    folder, head = lab.state("clu_s")["folder"], lab.pid("clu_s", "head")
    await until(lambda: _has_begun(head), 10)
    os.kill(head, signal.SIGSTOP)  # so that it cannot be gone before anybody looks
    await backend.stop("clu_s")
    await backend.start(spec)
    assert (await backend.observe("clu_s")).phase is Phase.STOPPING
    assert lab.state("clu_s")["starts"] == 1
    os.kill(head, signal.SIGCONT)
    await take_down(backend, "clu_s")
    assert nothing_left_of(folder)


async def test_what_was_never_started_is_absent(lab: Lab) -> None:
    await lab.backend().stop("clu_never")
    assert (await lab.backend().observe("clu_never")).phase is Phase.ABSENT
    assert await lab.backend().owned() == []


async def _has_begun(guard: int) -> bool:
    return bool(psutil.Process(guard).children())


def _crash_while_starting_the_head(lab: Lab, moment: str) -> None:
    crash = subprocess.run([sys.executable, "-c", CRASHING_SERVICE, lab.root, moment], check=False)
    assert crash.returncode == -signal.SIGKILL


async def _mends_its_worker(lab: Lab, break_it: Callable[[int], None]) -> None:
    pid = lab.pid("clu_c", "w-0")
    break_it(pid)

    async def missing() -> bool:
        seen = await lab.backend().observe("clu_c")
        assert seen.phase is Phase.UP
        return seen.nodes_up == 1

    await until(missing, 5)
    await bring_up(lab.backend(), small_spec("clu_c", small_group()))
    assert lab.pid("clu_c", "w-0") != pid
    assert not psutil.pid_exists(pid)


async def _in_phase(lab: Lab, phase: Phase, cluster_id: str = "clu_c") -> Observed | None:
    seen = await lab.backend().observe(cluster_id)
    return seen if seen.phase is phase else None


def _terminate_raylet(pid: int) -> None:
    below = psutil.Process(pid).children(recursive=True)
    next(process for process in below if process.name() == "raylet").terminate()


def _guards(folder: str) -> list[psutil.Process]:
    return [process for process in processes_of(folder) if process.name() == "muster-node"]
