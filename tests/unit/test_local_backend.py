"""What may keep whom waiting, without a process of Ray's."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_groups.backends import local
from cluster_groups.backends.local import THREADS, LocalBackend
from cluster_groups.backends.local_command import LocalSettings
from cluster_groups.backends.local_state import LocalCluster, LocalNode, StateFolder
from cluster_groups.model.cluster import ClusterSpec, NodeSpec, Phase
from tests.fakes.backend import FakeProbe
from tests.fakes.clock import FakeClock

HEAD = LocalNode(name="head", group="head", ip="127.0.0.2")
ENDED = [f"clu_{number}" for number in range(THREADS)]


class SlowRemoval:
    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()

    def __call__(self, folder: Path) -> None:
        del folder
        self.begun.release()
        self.may_end.wait()


@pytest.fixture
def removal(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRemoval]:
    removal = SlowRemoval()
    monkeypatch.setattr(local, "_remove_tree", removal)
    yield removal
    removal.may_end.set()


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    for name in ENDED:
        folder = str(tmp_path / "never" / name)
        ended = LocalCluster(id=name, folder=folder, token="t", dashboard_port=20001, nodes=(HEAD,), stopping_since=0)
        StateFolder(tmp_path).save(ended)
    return LocalBackend(tmp_path, FakeProbe(FakeClock()), LocalSettings(environment={}))


async def test_folders_that_take_long_keep_nobody_waiting(backend: LocalBackend, removal: SlowRemoval) -> None:
    *removed, other = ENDED
    async with asyncio.timeout(20):
        stopping = [asyncio.create_task(backend.stop(name)) for name in removed]
        await asyncio.gather(*(asyncio.to_thread(removal.begun.acquire) for _ in removed))
        for name in (removed[0], other):
            assert (await backend.observe(name)).phase is Phase.STOPPING
        removal.may_end.set()
        await asyncio.gather(*stopping)
        assert await backend.owned() == [other]


async def test_only_a_former_start_may_have_left_mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmounted: list[str] = []
    monkeypatch.setattr(local, "unmount_below", unmounted.append)
    monkeypatch.setattr(local.processes, "spawn", lambda *_: None)
    settings = LocalSettings(environment={}, temp_root=tmp_path)
    backend = LocalBackend(tmp_path / "state", FakeProbe(FakeClock()), settings)
    spec = ClusterSpec(id="clu_1", name="c", head=NodeSpec(), worker_groups=())
    await backend.start(spec)
    assert unmounted == []
    await backend.start(spec)
    assert [Path(folder).name for folder in unmounted] == ["0.own"]
