"""Volumes and large packages on the nodes of a real local cluster, by the plugin that Muster puts there."""

import asyncio
import hashlib
import os
import shutil
import socket
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from cluster_groups.model.cluster import Endpoint
from rayjobs.gateway.setup_failure import judge_setup
from rayjobs.model.run import EndCode
from runtime_envs.node_plugin.system import mounts_below
from runtime_envs.node_plugin.terms import MOUNTS_KEY, PACKAGE_KEY, Mount, Origin, mounts_field
from tests.builders.node_callback import NodeCallback, node_callback
from tests.builders.seaweedfs import BUCKET, S3Server
from tests.conftest import lacking
from tests.contract.local_lab import Lab, bring_up, local_lab, small_group, small_spec, until

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="module")]

TIMEOUT_S = 3
ON_A_WORKER = """python - <<'END'
import os, ray
ray.init()

@ray.remote(max_retries=0)
def die():
    os.kill(os.getpid(), 9)

@ray.remote
def work(name):
    folder = os.environ["MUSTER_MOUNT_DATA_A"]
    there = sorted(os.listdir(folder))
    with open(f"{folder}/{name}", "w") as file:
        file.write("from " + ray.util.get_node_ip_address())
    return there

try:
    ray.get(die.remote())
except ray.exceptions.WorkerCrashedError:
    print("killed")
print("found", ray.get(work.remote("by-task")))
with open(os.environ["MUSTER_MOUNT_DATA_A"] + "/by-driver", "x") as file:
    file.write("driver")
END"""


@pytest.fixture(scope="module")
def callback() -> Iterator[NodeCallback]:
    with node_callback() as callback:
        yield callback


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    tmp_path_factory: pytest.TempPathFactory, callback: NodeCallback
) -> AsyncIterator[tuple[Lab, Endpoint]]:
    """A head and a worker."""
    async with local_lab(tmp_path_factory.mktemp("lab") / "clusters") as lab:
        backend = lab.backend(mount_timeout_s=TIMEOUT_S)
        observed = await bring_up(backend, small_spec("clu_m", small_group()))
        assert observed.endpoint
        callback.token = observed.endpoint.token or ""
        yield lab, observed.endpoint


def mounting(callback: NodeCallback, attempt: str, *mounts: Mount) -> dict[str, Any]:
    return {MOUNTS_KEY: mounts_field(Origin(attempt, callback.url), list(mounts))}


def bucket(server: S3Server, name: str = "data-a", **fields: Any) -> Mount:
    source = {"bucket": BUCKET, "endpoint": server.endpoint, "path": "/"}
    return Mount(name, "s3", source, "data", needs_credential=True, **fields)


def offered(callback: NodeCallback, file: Path) -> dict[str, Any]:
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    callback.packages[sha256] = file
    return {"sha256": sha256, "size_bytes": file.stat().st_size}


async def nothing_is_mounted(lab: Lab) -> None:
    folder = lab.state("clu_m")["folder"]

    async def look() -> bool:
        return not mounts_below(folder)

    await until(look, 15)


@pytest.fixture
def s3fs(seaweedfs: S3Server, callback: NodeCallback) -> S3Server:
    if not shutil.which("s3fs") or not os.access("/dev/fuse", os.W_OK):
        lacking("s3fs and the right to use /dev/fuse")
    keys = {"key_id": seaweedfs.key_id, "secret_key": seaweedfs.secret_key}
    callback.credentials = {"data-a": keys, "wrong": {**keys, "secret_key": "another"}}
    return seaweedfs


class TestBucket:
    async def test_two_jobs_at_once_read_and_write_and_lose_a_worker(
        self, cluster: tuple[Lab, Endpoint], callback: NodeCallback, s3fs: S3Server
    ) -> None:
        lab, endpoint = cluster
        jobs = {name: mounting(callback, name, bucket(s3fs, sub_path=name)) for name in ("run_a-a1", "run_b-a1")}
        logs = await asyncio.gather(*(lab.run_job(endpoint, name, ON_A_WORKER, **env) for name, env in jobs.items()))
        for log in logs:
            assert "killed" in log
            assert "found []" in log
        await nothing_is_mounted(lab)

        whole = mounting(callback, "run_c-a1", bucket(s3fs, read_only=True))
        reading = "cd $MUSTER_MOUNT_DATA_A; cat run_a-a1/by-task run_b-a1/by-driver; touch new || echo refused"
        log = await lab.run_job(endpoint, "run_c-a1", reading, **whole)
        assert "from 127.0.0.3driver" in log
        assert "refused" in log
        await nothing_is_mounted(lab)

    @pytest.mark.parametrize(
        ("name", "source", "words"),
        [
            ("wrong", {}, "volume wrong (s3) cannot be mounted: SignatureDoesNotMatch"),
            ("data-a", {"bucket": "nonesuch"}, "volume data-a (s3) cannot be mounted: AccessDenied"),
            ("nobody", {}, "volume nobody (s3) has no lasting credential"),
        ],
    )
    async def test_what_is_refused_says_why(  # noqa: PLR0917 - fixtures and cases
        self,
        cluster: tuple[Lab, Endpoint],
        callback: NodeCallback,
        s3fs: S3Server,
        name: str,
        source: dict[str, str],
        words: str,
    ) -> None:
        lab, endpoint = cluster
        mount = bucket(s3fs, name)
        attempt = f"run_{len(callback.asked)}-a1"
        env = mounting(callback, attempt, mount._replace(source={**mount.source, **source}))
        info = await lab.end_of_job(endpoint, attempt, "true", **env)
        assert info["error_type"] == "RUNTIME_ENV_SETUP_FAILURE"
        end = judge_setup(info["message"])
        assert end.code is EndCode.NODE_NOT_PREPARED
        assert end.params["message"].startswith(words)
        await nothing_is_mounted(lab)

    async def test_a_target_that_hangs_is_given_up(
        self, cluster: tuple[Lab, Endpoint], callback: NodeCallback, s3fs: S3Server
    ) -> None:
        lab, endpoint = cluster
        with socket.create_server(("127.0.0.1", 0)) as silent:
            there = f"http://127.0.0.1:{silent.getsockname()[1]}"
            mount = bucket(s3fs)
            env = mounting(callback, "run_h-a1", mount._replace(source={**mount.source, "endpoint": there}))
            began = time.monotonic()
            info = await lab.end_of_job(endpoint, "run_h-a1", "true", **env)
        assert f"volume data-a (s3) does not answer within {TIMEOUT_S} s" in info["message"]
        assert time.monotonic() - began < 3 * (TIMEOUT_S + 1) + 5
        await nothing_is_mounted(lab)


class TestFolder:
    async def test_it_is_shared_by_nodes_and_read_only_where_asked(
        self, cluster: tuple[Lab, Endpoint], callback: NodeCallback, tmp_path: Path
    ) -> None:
        lab, endpoint = cluster
        (tmp_path / "fixed").mkdir()
        (tmp_path / "fixed" / "note").write_text("kept")
        source = {"path": str(tmp_path)}
        mounts = [
            Mount("data-a", "local", source, "data", "made/here"),
            Mount("fixed", "local", source, "fixed", "fixed", read_only=True),
        ]
        entrypoint = f"{ON_A_WORKER}\ncat $MUSTER_MOUNT_FIXED/note; touch $MUSTER_MOUNT_FIXED/x || echo refused"
        if os.geteuid() != 0:
            lacking("root, who alone can mount read-only")
        log = await lab.run_job(endpoint, "run_l-a1", entrypoint, **mounting(callback, "run_l-a1", *mounts))
        assert "kept" in log
        assert "refused" in log
        assert (tmp_path / "made" / "here" / "by-task").read_text() == "from 127.0.0.3"
        assert (tmp_path / "made" / "here" / "by-driver").read_text() == "driver"
        await nothing_is_mounted(lab)


class TestPackage:
    async def test_a_large_one_is_unpacked_as_ray_does_it_on_every_node(
        self, cluster: tuple[Lab, Endpoint], callback: NodeCallback, tmp_path: Path
    ) -> None:
        lab, endpoint = cluster
        file = tmp_path / "large.zip"
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("top/weights.bin", os.urandom(101 * 2**20))
            archive.writestr("top/answer.py", "number = 42")
        package = offered(callback, file)
        program = """python -c '
import os, ray
ray.init()
@ray.remote
def look():
    from top.answer import number
    return number, os.path.getsize("top/weights.bin"), ray.util.get_node_ip_address()
print(look._function(), ray.get(look.remote()))'"""
        for attempt in ("run_p-a1", "run_q-a1"):
            env = {PACKAGE_KEY: {"attempt": attempt, "callback": callback.url, **package}}
            log = await lab.run_job(endpoint, attempt, program, **env)
            assert f"(42, {101 * 2**20}, '127.0.0.2') (42, {101 * 2**20}, '127.0.0.3')" in log
        assert sum("/packages/" in path for path in callback.asked) == 2  # once for each node, and kept

    async def test_other_bytes_are_refused(self, cluster: tuple[Lab, Endpoint], callback: NodeCallback) -> None:
        lab, endpoint = cluster
        package = {**offered(callback, Path(__file__)), "sha256": "0" * 64}
        callback.packages["0" * 64] = Path(__file__)
        env = {PACKAGE_KEY: {"attempt": "run_w-a1", "callback": callback.url, **package}}
        info = await lab.end_of_job(endpoint, "run_w-a1", "true", **env)
        assert "the package came with other bytes than it should" in info["message"]


async def test_what_is_malformed_ends_with_words(cluster: tuple[Lab, Endpoint]) -> None:
    lab, endpoint = cluster
    info = await lab.end_of_job(endpoint, "malformed", "true", **{MOUNTS_KEY: {"attempt": "x", "mounts": 7}})
    assert "muster: the field muster_mounts of the runtime_env is malformed" in info["message"]
