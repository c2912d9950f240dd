"""A real S3 server for tests: SeaweedFS, built once from the Go module proxy and kept in the user's cache.

`python -m tests.builders.seaweedfs` builds it where it is not yet there.
"""

import fcntl
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from platformdirs import user_cache_path

MODULE = "github.com/seaweedfs/seaweedfs"
VERSION = "v0.0.0-20261109003541-7506e5f91cd6"
BUILD_TIMEOUT_S = 3600
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20
BUCKET, VERSIONED_BUCKET, CLOSED_BUCKET = "muster-tests", "muster-versioned", "muster-closed"


@dataclass(frozen=True, slots=True)
class S3Server:
    """Whoever has `key_id` may do everything but in `CLOSED_BUCKET`."""

    endpoint: str
    key_id: str = "muster-key"
    secret_key: str = "muster-secret"

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])


def built() -> Path | None:
    program = user_cache_path("muster-tests") / f"weed-{VERSION}"
    return program if program.exists() else None


def build() -> Path:
    """Takes four to ten minutes, once."""
    if not built() and not shutil.which("go"):
        raise SystemExit("needs Go 1.24 or newer, which many distributions do not have: see go.dev")
    cache = user_cache_path("muster-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "weed.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=cache) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program := built():
            return program
        for command in (
            ["go", "mod", "init", "muster.test/tools"],
            ["go", "get", "-tool", f"{MODULE}/weed@{VERSION}"],
            ["go", "build", "-o", "weed", f"{MODULE}/weed"],
        ):
            subprocess.run(["nice", "-n", "15", *command], cwd=folder, check=True, timeout=BUILD_TIMEOUT_S)
        program = cache / f"weed-{VERSION}"
        (Path(folder) / "weed").replace(program)
        return program


@contextmanager
def s3_server(program: Path) -> Iterator[S3Server]:
    with ExitStack() as ending:
        folder = Path(tempfile.mkdtemp(prefix="muster-s3-"))
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        s3_port, *ports = _free_ports(8)
        server = S3Server(f"http://127.0.0.1:{s3_port}")
        (folder / "identities.json").write_text(json.dumps(_identities(server)))
        log = ending.enter_context((folder / "server.log").open("wb"))
        process = subprocess.Popen(_command(program, s3_port, ports), cwd=folder, stdout=log, stderr=log)
        ending.callback(_stop, process)
        _make_buckets(server, process, folder / "server.log")
        yield server


def _identities(server: S3Server) -> dict[str, Any]:
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    ours = [f"{action}:{bucket}" for action in everything[1:] for bucket in (BUCKET, VERSIONED_BUCKET)]
    return {
        "identities": [
            _identity("root", "root-key", "root-secret", everything),
            _identity("muster", server.key_id, server.secret_key, ours),
        ]
    }


def _identity(name: str, key_id: str, secret_key: str, actions: list[str]) -> dict[str, Any]:
    return {"name": name, "credentials": [{"accessKey": key_id, "secretKey": secret_key}], "actions": actions}


def _command(program: Path, s3_port: int, ports: list[int]) -> list[str]:
    names = [
        "s3.port.grpc",
        *(f"{part}.port{kind}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")),
    ]
    return [
        *(str(program), "server", "-dir=.", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-s3.config=identities.json"),
        *("-volume.max=30", "-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false"),
        *(f"-s3.port={s3_port}", *(f"-{name}={port}" for name, port in zip(names, ports, strict=True))),
    ]


def _make_buckets(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """It is up when it has stored something."""
    client = _client(server.endpoint, "root-key", "root-secret")
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            for bucket in (BUCKET, VERSIONED_BUCKET, CLOSED_BUCKET):
                client.create_bucket(Bucket=bucket)
                client.put_object(Bucket=bucket, Key="first", Body=b"1")
            client.put_bucket_versioning(Bucket=VERSIONED_BUCKET, VersioningConfiguration={"Status": "Enabled"})
        except (BotoCoreError, ClientError):
            is_late = time.monotonic() > deadline
            assert process.poll() is None, log.read_text(errors="replace")
            assert not is_late, log.read_text(errors="replace")
            time.sleep(0.2)
        else:
            return


def _client(endpoint: str, key_id: str, secret_key: str) -> Any:
    config = Config(retries={"total_max_attempts": 1}, proxies={}, s3={"addressing_style": "path"})
    session = boto3.session.Session(key_id, secret_key, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(closing(socket.socket())) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # at once: there is nothing to keep
    process.wait(STOP_TIMEOUT_S)


if __name__ == "__main__":
    build()
