"""Journeys of runs with more than Ray carries: a large package out of a bucket, volumes."""

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from runtime_envs.node_plugin.system import mounts_below
from tests.builders.seaweedfs import BUCKET, S3Server
from tests.builders.waiting import wait_until
from tests.conftest import lacking
from tests.e2e.support import Json, Service, running

pytestmark = pytest.mark.ray

MIB = 2**20
ON_BOTH_NODES = """python - <<'END'
import os, ray
ray.init()

@ray.remote
def write(text):
    with open(os.environ["MUSTER_MOUNT_BUCKET_A"] + "/" + text.split()[-1], "w") as file:
        file.write(text)

ray.get(write.remote("worker of " + os.environ["MUSTER_RUN_ID"]))
END
cat $MUSTER_MOUNT_BUCKET_A/$MUSTER_RUN_ID; echo
touch $MUSTER_MOUNT_FOLDER/x 2>/dev/null || echo read-only"""
NODES = ("--head", "cpu=1,memory_gib=2", "--worker", "name=w,cpu=1,memory_gib=2")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, seaweedfs: S3Server) -> Iterator[Service]:
    """With a cluster `lab`, and a credential `keys` of the bucket."""
    allowed = {"MUSTER_OBJECT_ENDPOINTS": seaweedfs.endpoint}
    with running(Service(tmp_path_factory.mktemp("muster"), **allowed)) as service:
        keys = {"access_key_id": seaweedfs.key_id, "secret_access_key": seaweedfs.secret_key}
        create(service, "credential", {"name": "keys", "type": "s3", "data": keys})
        service.done("cluster", "create", "lab", *NODES)
        service.done("cluster", "start", "lab")
        wait_until(lambda: service.show("cluster", "lab")["health"]["status"] == "HEALTHY", 90)
        yield service


def test_a_package_of_more_than_ray_takes(service: Service, seaweedfs: S3Server, tmp_path: Path) -> None:
    file = tmp_path / "large.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("top/weights.bin", os.urandom(101 * MIB))
        archive.writestr("top/main.py", "import os; print('read', os.path.getsize('top/weights.bin'))")
    put(seaweedfs, "large.zip", file)
    source = ("--credential", "keys", "--endpoint", seaweedfs.endpoint)
    package = service.done("package", "fetch", f"s3://{BUCKET}/large.zip", *source, "-o", "name")
    job = ("--cluster", "lab", "--package", package, "--entrypoint", "python top/main.py")
    service.done("job", "create", "large", *job)
    run = service.done("run", "submit", "large")
    assert service.muster("run", "wait", run).code == 0, service.why(run)
    assert service.done("run", "logs", run) == f"read {101 * MIB}"


@pytest.fixture
def small(service: Service, tmp_path: Path) -> str:
    (tmp_path / "main.py").write_text("")
    return service.done("package", "upload", tmp_path, "-o", "name")


def test_volumes_of_two_runs_at_once(service: Service, seaweedfs: S3Server, small: str, tmp_path: Path) -> None:
    if not shutil.which("s3fs") or os.geteuid() != 0:
        lacking("s3fs, and root")
    volume(service, "bucket-a", "s3", {"bucket": BUCKET, "endpoint": seaweedfs.endpoint}, credential="keys")
    volume(service, "folder", "local", {"path": str(tmp_path)})
    mounts = [
        {"volume": "bucket-a", "mount_path": "/mnt/muster/bucket", "sub_path": "e2e"},
        {"volume": "folder", "mount_path": "/mnt/muster/folder", "read_only": True},
    ]
    job(service, "mounting", small, ON_BOTH_NODES, mounts)
    runs = [service.done("run", "submit", "mounting") for _ in range(2)]
    for run in runs:
        assert service.muster("run", "wait", run).code == 0, service.why(run)
        assert service.done("run", "logs", run).splitlines()[-2:] == ["worker of " + run, "read-only"]
    (folder,) = service.cluster_folders()
    wait_until(lambda: not mounts_below(folder), 15)


def test_a_volume_with_wrong_keys_ends_the_run_with_words(service: Service, seaweedfs: S3Server, small: str) -> None:
    if not shutil.which("s3fs") or os.geteuid() != 0:
        lacking("s3fs, and root")
    keys = {"access_key_id": seaweedfs.key_id, "secret_access_key": "another"}
    create(service, "credential", {"name": "wrong", "type": "s3", "data": keys})
    volume(service, "closed", "s3", {"bucket": BUCKET, "endpoint": seaweedfs.endpoint}, credential="wrong")
    job(service, "refused", small, "true", [{"volume": "closed", "mount_path": "/mnt/muster/x"}])
    run = service.done("run", "submit", "refused")
    said = service.muster("run", "wait", run)
    assert said.code == 1
    assert "environment/NODE_NOT_PREPARED" in said.err
    assert "volume closed (s3) cannot be mounted: SignatureDoesNotMatch" in said.err
    assert "another" not in said.err


def volume(service: Service, name: str, kind: str, source: Json, **more: str) -> None:
    create(service, "volume", {"name": name, "type": kind, "source": source, **more})


def job(service: Service, name: str, package: str, command: str, mounts: list[Json]) -> None:
    target = {"run_mode": "cluster", "cluster": "lab", "package": package}
    create(service, "job", {"name": name, **target, "entrypoint": command, "mounts": mounts})


def create(service: Service, noun: str, body: Json) -> None:
    file = service.folder / "body.json"
    file.write_text(json.dumps(body))
    service.done(noun, "create", "-f", file)


def put(server: S3Server, key: str, file: Path) -> None:
    session = boto3.session.Session(server.key_id, server.secret_key, region_name="us-east-1")
    config = Config(proxies={}, s3={"addressing_style": "path"})
    session.client("s3", endpoint_url=server.endpoint, config=config).upload_file(str(file), BUCKET, key)
