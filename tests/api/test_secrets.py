"""Secrets go in and never come out: not in answers, not in the log of any level, not in any file but sealed."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr
from structlog.testing import capture_logs

from api.local_secrets import credential_keys
from api.schemas.credentials import CredentialCreate
from api.settings import Settings
from api.wiring import Services, prepare, wire
from cluster_groups.backends.local_command import LocalSettings
from cluster_groups.model.cluster import Endpoint
from kernel.actor import SYSTEM_ACTOR
from kernel.errors import InvalidInput, Unavailable
from rayjobs.leases import Callback
from runtime_envs.credentials import CredentialType, NewCredential
from runtime_envs.packages.bucket import BucketKeys
from tests.api.test_process import serving, stop

CANARY = "canary/Ky9+äö"
"""With characters that are written in other ways in addresses, JSON and base64."""
PLAIN = "canary-Zq7pV2xN4mK9"
"""For what can only be plain text, as headers are."""
TYPES = {
    "cos": ("secret_id", "secret_key", "token"),
    "s3": ("access_key_id", "secret_access_key", "session_token"),
    "ray_token": ("token",),
    "registry": ("server", "username", "password"),
}


class TestEverywhere:
    def test_nowhere(self, tmp_path: Path) -> None:
        secrets = {name: f"{PLAIN}-{name}" for name in ("admin", "blob_id", "blob_key", "runner", "stranger", "ray")}
        key = Fernet.generate_key().decode()
        settings = {
            "MUSTER_LOG_LEVEL": "debug",
            "MUSTER_ADMIN_TOKEN": secrets["admin"],
            "MUSTER_CREDENTIAL_KEY": key,
            "MUSTER_BLOB_KEY_ID": secrets["blob_id"],
            "MUSTER_BLOB_SECRET_KEY": secrets["blob_key"],
            "MUSTER_OBJECT_ENDPOINTS": "http://127.0.0.1:9",
            "MUSTER_CALLBACK_URL": "http://127.0.0.1:9",
        }
        with an_echo() as echo, serving(tmp_path, **settings) as (process, address):
            answers = "".join(told(address, echo, secrets))
            assert stop(process, 15) == 0
            assert process.stdout is not None
            assert process.stderr is not None
            answers += process.stdout.read() + process.stderr.read()
        kept = tmp_path / "admin-token"  # for the command line of this machine
        assert kept.stat().st_mode & 0o777 == 0o600
        files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file != kept)
        seen = answers.encode() + files
        assert b"PROBE_" in seen  # the echo was asked
        found = [form for form in (*forms(CANARY), *forms("canary"), key) if form.encode() in seen]
        assert found == []


def told(address: str, echo: str, secrets: dict[str, str]) -> Iterator[str]:
    """What is answered to everything that carries a secret, well formed or not."""
    headers = {"Authorization": f"Bearer {secrets['admin']}"}
    with httpx.Client(base_url=address, headers=headers, trust_env=False, timeout=30) as http:

        def ask(method: str, path: str, body: object = None, **more: str) -> str:
            answer = http.request(method, path, json=body, headers=more)
            return answer.text + str(answer.headers)

        v1 = "/api/v1"
        for kind, fields in TYPES.items():
            data = dict.fromkeys(fields, CANARY) | ({"token": secrets["ray"]} if kind == "ray_token" else {})
            for body in bad_bodies(kind, data):
                yield ask("POST", f"{v1}/credentials", body, **{"Idempotency-Key": f"{kind}-{len(str(body))}"})
            yield ask("POST", f"{v1}/credentials", {"name": kind.replace("_", "-"), "type": kind, "data": data})
            yield ask("PATCH", f"{v1}/credentials/{kind.replace('_', '-')}", {"data": data})
            yield ask("PATCH", f"{v1}/credentials/{kind.replace('_', '-')}", {"data": {"token": CANARY, "b": CANARY}})
        attached = {"name": "old", "kind": "attached", "address": echo, "credential": "ray-token"}
        yield ask("POST", f"{v1}/clusters", attached)
        yield ask("POST", f"{v1}/clusters", attached | {"address": "http://127.0.0.1:9"})
        for kind in ("s3", "cos"):
            source = {"type": kind, "bucket": "jobs-1250000000", "key": "a.zip", "region": "ap-guangzhou"}
            there = {"endpoint": "http://127.0.0.1:9", "credential": kind}
            yield ask("POST", f"{v1}/packages", {"source": source | there})
        lease = "/runner/v1/attempts/run_1-a1/lease"
        yield ask("POST", lease, {"claim": secrets["runner"]}, Authorization=f"Bearer {secrets['runner']}")
        yield ask("GET", f"{v1}/whoami", Authorization=f"Bearer {secrets['stranger']}")
        yield ask("GET", "/ray/api/jobs/", Authorization=f"Bearer {secrets['stranger']}")
        presigned = f"https://user:{PLAIN}@host/a.exe?X-Amz-Signature={PLAIN}"
        job = {"name": "j", "run_mode": "cluster", "cluster": "old", "entrypoint": "x", "package": "pkg_1"}
        yield ask("POST", f"{v1}/jobs", job | {"runtime_env": {"py_modules": [presigned]}})
        for path in ("credentials", "credentials/s3", "clusters", "clusters/old", "clusters/old/events", "audit"):
            yield ask("GET", f"{v1}/{path}")
        for path in ("/metrics", "/readyz", "/openapi.json"):
            yield ask("GET", path)


def bad_bodies(kind: str, data: dict[str, str]) -> Iterator[dict[str, object]]:
    yield {"name": "bad", "type": kind, "data": data | {"more": CANARY}}
    yield {"name": "bad", "type": kind, "data": {name: f" {value}" for name, value in data.items()}}
    yield {"name": "bad", "type": kind, "data": {name: [value] for name, value in data.items()}}
    yield {"name": "bad", "type": "none", "data": data}
    yield {"name": "bad", "type": kind, "data": CANARY}


@contextmanager
def an_echo() -> Iterator[str]:
    """A cluster that throws back whatever it is sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"detail": str(self.headers)}).encode()
            self.send_response(500, str(self.headers.get("Authorization")))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def forms(secret: str) -> set[str]:
    """How it could be written down."""
    coded = base64.b64encode(secret.encode()).decode()
    return {secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe=""), coded.rstrip("=")}


@pytest.mark.parametrize(
    "holder",
    [
        BucketKeys(key_id="id", secret_key=PLAIN, token=PLAIN),
        NewCredential(name="n", type=CredentialType.S3, data={"secret_access_key": PLAIN}),
        CredentialCreate.model_validate({"name": "n", "type": "ray_token", "data": {"token": PLAIN}}),
        Callback(url="http://host", key=PLAIN.encode(), former=(PLAIN.encode(),)),
        Endpoint(address="http://host", token=PLAIN),
        LocalSettings(environment={"MUSTER_ADMIN_TOKEN": PLAIN}),
        Settings(admin_token=SecretStr(PLAIN), database_url=SecretStr(f"postgresql://u:{PLAIN}@host/db")),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_not_by_way_of_a_repr(holder: object) -> None:
    assert PLAIN not in repr(holder) + str(holder)


class TestKeys:
    OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
    pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

    @staticmethod
    async def started(database_url: str, folder: Path, *keys: str) -> Services:
        services = wire(Settings(state_dir=folder, database_url=database_url, credential_key=" ".join(keys)))
        await prepare(services)
        return services

    async def test_rotation(self, database_url: str, tmp_path: Path) -> None:
        services = await self.started(database_url, tmp_path, self.OLD)
        new = NewCredential(name="tok", type=CredentialType.RAY_TOKEN, data={"token": PLAIN})
        async with services.database.write() as session:
            await services.credentials.create(session, SYSTEM_ACTOR, new)
        await services.database.close()
        for keys in ((self.OLD, self.NEW), (self.NEW, self.OLD), (self.NEW,)):
            services = await self.started(database_url, tmp_path, *keys)
            assert await services.credentials.secret("tok") == PLAIN
            await services.database.close()

    async def test_a_lost_key(self, database_url: str, tmp_path: Path) -> None:
        services = await self.started(database_url, tmp_path, self.OLD)
        new = NewCredential(name="tok", type=CredentialType.RAY_TOKEN, data={"token": PLAIN})
        async with services.database.write() as session:
            await services.credentials.create(session, SYSTEM_ACTOR, new)
        await services.database.close()
        with capture_logs() as logged:
            services = await self.started(database_url, tmp_path, self.NEW)
        assert [(one["event"], one["names"]) for one in logged] == [("credentials_unreadable", ["tok"])]
        with pytest.raises(Unavailable, match="CREDENTIAL_KEY_WRONG"):
            await services.credentials.secret("tok")
        async with services.database.write() as session:
            await services.credentials.replace(session, SYSTEM_ACTOR, "tok", {"token": "another"})
        assert await services.credentials.secret("tok") == "another"
        await services.database.close()

    def test_a_file_that_holds_none(self, database_url: str, tmp_path: Path) -> None:
        (tmp_path / "credential-key").write_text("no key\n")
        with pytest.raises(InvalidInput, match="INVALID_SETTING"):
            credential_keys(Settings(state_dir=tmp_path, database_url=database_url))
