"""What was mounted on a node that was killed: taken away, and nothing below it ever deleted with the node."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cluster_groups.model.cluster import Endpoint
from runtime_envs.node_plugin.system import mounts_below
from runtime_envs.node_plugin.terms import MOUNTS_KEY, Mount, Origin, mounts_field
from tests.conftest import lacking
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

ON_BOTH_NODES = """python -c '
import os, ray, time
ray.init()
@ray.remote
def write():
    open(os.environ["MUSTER_MOUNT_DATA"] + "/by-task", "w").close()
    time.sleep(600)
ray.get(write.remote())'"""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    if os.geteuid() != 0:
        lacking("root, for whom alone folders are mounted and not linked")
    async with local_lab(tmp_path / "clusters") as lab:
        yield lab


async def test_nothing_is_deleted_through_a_mount_of_a_killed_node(lab: Lab, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "precious").write_text("kept")
    spec = small_spec("clu_k", small_group())
    observed = await bring_up(lab.backend(), spec)
    assert observed.endpoint
    folder = lab.state("clu_k")["folder"]
    await _start(lab, observed.endpoint, data)

    async def is_at_work() -> bool:
        return (data / "by-task").exists() and len(mounts_below(folder)) == 2

    await until(is_at_work, 30)

    (of_worker,) = mounts_below(f"{folder}/1.own")
    _kill_tree(lab.pid("clu_k", "w-0"))
    await bring_up(lab.backend(), spec)
    assert of_worker not in mounts_below(folder)

    _kill(processes_of(folder))
    assert mounts_below(folder)
    await take_down(lab.backend(), "clu_k")
    assert nothing_left_of(folder)
    assert not mounts_below(folder)
    assert {file.name for file in data.iterdir()} == {"by-task", "precious"}
    assert (data / "precious").read_text() == "kept"


async def test_what_cannot_be_unmounted_keeps_its_cluster_from_being_deleted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = lab.backend()
    await backend.start(small_spec("clu_s"))
    folder = lab.state("clu_s")["folder"]
    asked = []

    def stays(folder: str) -> list[str]:
        asked.append(folder)
        return [f"{folder}/0.own/mounts/run_1-a1/data"]

    async def is_asked_twice() -> bool:
        await backend.stop("clu_s")
        return len(asked) >= 2

    with monkeypatch.context() as patched:
        patched.setattr("cluster_groups.backends.local.unmount_below", stays)
        await until(is_asked_twice, 20)
        assert not processes_of(folder)
        assert not nothing_left_of(folder)
    await take_down(backend, "clu_s")
    assert nothing_left_of(folder)


async def _start(lab: Lab, endpoint: Endpoint, data: Path) -> None:
    mount = Mount("data", "local", {"path": str(data)}, "data")
    job = {
        "submission_id": "run_1-a1",
        "entrypoint": ON_BOTH_NODES,
        "runtime_env": {MOUNTS_KEY: mounts_field(Origin("run_1-a1", None), [mount])},
    }
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    posted = await lab.http.post(f"{endpoint.address}/api/jobs/", json=job, headers=headers, timeout=30)
    assert posted.status_code == 200, posted.text


def _kill_tree(pid: int) -> None:
    guard = psutil.Process(pid)
    _kill([guard, *guard.children(recursive=True)])


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # one took the other with it
            process.kill()
