"""Ray's own command line and SDK, unchanged, against `muster serve` and the Ray clusters it makes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from tests.builders.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

TOKEN = "mst_of-the-contract-tests"
CLUSTER = {
    "name": "c1",
    "kind": "managed",
    "backend": "local",
    "resource_package": "shared",
    "resource_group": "shared",
    "head": {"cpu": 1, "memory_gib": 4},
    "worker_groups": [{"name": "w", "cpu": 1, "memory_gib": 2}],
}
UP_WITHIN_S, ENDS_WITHIN_S, CLI_WITHIN_S = 120, 60, 100
MAIN = """
import os, sys, helper, ray
print("视频", os.environ["GREETING"], helper.NAME, flush=True)
ray.init(log_to_driver=False)
print("nodes", len(ray.nodes()), flush=True)
sys.exit(int(sys.argv[1]))
"""


class Service:
    """`muster serve` with a state folder of its own, which outlives the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self.rest = httpx.Client(base_url=f"{self.address}/api/v1", headers=headers, timeout=30, trust_env=False)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {"STATE_DIR": str(self.folder / "state"), "PORT": str(self.port), "ADMIN_TOKEN": TOKEN}
        environment = {f"MUSTER_{name}": value for name, value in settings.items()}
        with (self.folder / "serve.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "api.main"], env=_clean() | environment, stdout=output, stderr=output
            )
        wait_until(self._answers, 60, self.log)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(30) == 0, self.log()

    def log(self) -> str:
        return (self.folder / "serve.log").read_text(errors="replace")[-4000:]

    def cli(self, *arguments: str, address: str = "/ray/clusters/c1", token: str = TOKEN) -> subprocess.Popen[str]:
        """`ray job …`, its output going to one place as on a terminal."""
        environment = {
            "RAY_API_SERVER_ADDRESS": self.address + address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
        }
        ray = Path(sys.executable).with_name("ray")
        return subprocess.Popen(
            [ray, "job", *arguments],
            env=_clean() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ray(self, *arguments: str, **where: str) -> tuple[int, str]:
        process = self.cli(*arguments, **where)
        output, _ = process.communicate(timeout=CLI_WITHIN_S)
        return process.returncode, output

    def sdk(self, address: str = "/ray/clusters/c1") -> JobSubmissionClient:
        return JobSubmissionClient(self.address + address, headers={"Authorization": f"Bearer {TOKEN}"})

    def state_of(self, cluster: str) -> str:
        answer = self.rest.get(f"/clusters/{cluster}")
        return str(answer.json()["state"]) if answer.status_code == 200 else "GONE"

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.address}/readyz", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("ray"))
    try:
        service.start()
        with _cluster(service):
            yield service
    finally:
        service.stop()
        service.rest.close()


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "main.py").write_text(MAIN)
    (folder / "helper.py").write_text("NAME = 'from the folder'\n")
    return folder


class TestCommandLine:
    def test_submit_sends_the_folder_follows_the_log_and_tells_success(self, service: Service, code: Path) -> None:
        env = json.dumps({"env_vars": {"GREETING": "hello"}})
        code_, output = service.ray(
            "submit", "--submission-id=one", f"--working-dir={code}", f"--runtime-env-json={env}",
            "--", "python", "main.py", "0",
        )  # fmt: skip
        assert code_ == 0, output
        assert "视频 hello from the folder\n" in output
        assert "nodes 2\n" in output
        assert "Job 'one' succeeded" in output
        assert "muster_runner" not in output
        assert service.ray("logs", "one")[1].count("视频 hello") == 1
        assert "Job 'one' succeeded" in service.ray("status", "one")[1]
        assert "submission_id='one'" in service.ray("list")[1]
        assert "deleted successfully" in service.ray("delete", "one")[1]
        assert "submission_id='one'" not in service.ray("list")[1]

    def test_submit_of_what_fails_exits_with_1_and_says_why(self, service: Service) -> None:
        code, output = service.ray("submit", "--submission-id=bad", "--", "sh", "-c", "echo so far; exit 3")
        assert code == 1
        assert "so far\n" in output
        assert "Job 'bad' failed" in output
        assert "The entry command ended with exit code 3." in output

    def test_stop_ends_what_runs(self, service: Service) -> None:
        assert service.ray("submit", "--no-wait", "--submission-id=long", "--", "sleep", "600")[0] == 0
        wait_until(lambda: service.sdk().get_job_status("long") == JobStatus.RUNNING, ENDS_WITHIN_S, service.log)
        code, output = service.ray("stop", "long")
        assert code == 0
        assert "Job 'long' was stopped" in output

    def test_what_the_driver_reserves_takes_it_to_a_worker(self, service: Service) -> None:
        code, output = service.ray(
            "submit", "--entrypoint-num-cpus=1", "--", "python", "-c",
            "import ray; ray.init(log_to_driver=False); print('cpus', ray.available_resources().get('CPU', 0))",
        )  # fmt: skip
        assert code == 0, output
        assert "cpus 0" in output

    def test_refusals_are_the_last_line_people_see(self, service: Service) -> None:
        env = json.dumps({"image_uri": "x"})
        code, output = service.ray("submit", f"--runtime-env-json={env}", "--", "true")
        assert code == 1
        assert "status code 400: IMAGE_URI_NOT_ALLOWED" in output.splitlines()[-1]

    def test_a_wrong_token_says_what_to_set(self, service: Service) -> None:
        code, output = service.ray("list", token="wrong")
        assert code == 1
        assert "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to a token of this Muster service" in output


class TestSdk:
    def test_a_submission_with_modules_and_metadata(self, service: Service, code: Path) -> None:
        client = service.sdk()
        client_id = client.submit_job(
            entrypoint="python -c 'import helper; print(helper.NAME)'",
            runtime_env={"py_modules": [str(code)], "working_dir": str(code)},
            metadata={"team": "video"},
        )
        _wait_ended(client, client_id, service)
        info = client.get_job_info(client_id)
        assert (info.status, info.metadata, info.driver_exit_code) == (JobStatus.SUCCEEDED, {"team": "video"}, 0)
        assert client.get_job_logs(client_id) == "from the folder\n"
        assert client_id in {job.submission_id for job in client.list_jobs()}
        assert client.stop_job(client_id) is False
        assert client.delete_job(client_id) is True

    @pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray's client asks so
    def test_the_tail_gives_the_whole_log_and_ends(self, service: Service) -> None:
        client = service.sdk()
        client_id = client.submit_job(entrypoint="for i in 1 2 3; do echo $i; sleep 0.3; done")

        async def read() -> str:
            return "".join([text async for text in client.tail_job_logs(client_id)])

        assert asyncio.run(read()) == "1\n2\n3\n"
        assert client.get_job_status(client_id) == JobStatus.SUCCEEDED

    def test_an_id_used_before(self, service: Service) -> None:
        client = service.sdk()
        client.submit_job(entrypoint="true", submission_id="twice")
        with pytest.raises(RuntimeError, match="Job with submission_id twice already exists"):
            client.submit_job(entrypoint="true", submission_id="twice")

    def test_without_a_token(self, service: Service) -> None:
        with pytest.raises(AuthenticationError, match="Set RAY_AUTH_MODE=token"):
            JobSubmissionClient(f"{service.address}/ray/clusters/c1")

    def test_the_bare_address_makes_a_cluster_for_the_run(self, service: Service, code: Path) -> None:
        client = service.sdk("/ray")
        runtime_env = {"working_dir": str(code), "env_vars": {"GREETING": "hi"}}
        client_id = client.submit_job(entrypoint="python main.py 0", runtime_env=runtime_env)
        _wait_ended(client, client_id, service, within_s=UP_WITHIN_S)
        info = client.get_job_info(client_id)
        assert info.status == JobStatus.SUCCEEDED, info.message
        assert "nodes 2\n" in client.get_job_logs(client_id)


class TestRestart:
    def test_a_tail_is_cut_and_the_job_goes_on(self, service: Service, tmp_path: Path) -> None:
        release = tmp_path / "release"
        wait = f"echo started; until [ -e {release} ]; do sleep 0.1; done; echo ended"
        following = service.cli("submit", "--submission-id=kept", "--", "sh", "-c", wait)
        assert following.stdout is not None
        output = ""
        while "started\n" not in output:
            line = following.stdout.readline()
            assert line, output
            output += line
        service.stop()
        service.start()
        rest, _ = following.communicate(timeout=CLI_WITHIN_S)
        assert following.returncode == 1
        assert "closed unexpectedly with close code 1006" in rest
        release.touch()
        code, output = service.ray("logs", "--follow", "kept")
        assert code == 0
        assert "started\nended\n" in output
        assert "Job 'kept' succeeded" in output


@contextmanager
def _cluster(service: Service) -> Iterator[None]:
    amounts = {"cpu": 4, "memory_gib": 16}  # apart from the group `default`, which runs at the bare address need whole
    for path, body in (
        ("/resource-packages", {"name": "shared", "backend": "local", "capacity": amounts}),
        ("/resource-groups", {"name": "shared", "resource_package": "shared", "quota": amounts}),
        ("/clusters", CLUSTER),
    ):
        made = service.rest.post(path, json=body)
        assert made.status_code == 201, made.text
    service.rest.post("/clusters/c1/start").raise_for_status()
    try:
        wait_until(lambda: service.state_of("c1") == "RUNNING", UP_WITHIN_S, service.log)
        yield
    finally:
        for run in service.rest.get("/runs").json()["items"]:
            service.rest.post(f"/runs/{run['id']}/stop").raise_for_status()
        service.rest.request("DELETE", "/clusters/c1", json={"force": True}).raise_for_status()
        wait_until(lambda: service.state_of("c1") == "GONE", ENDS_WITHIN_S, service.log)
        wait_until(lambda: not list((service.folder / "state/local").glob("*.json")), ENDS_WITHIN_S, service.log)


def _wait_ended(client: JobSubmissionClient, client_id: str, service: Service, within_s: float = ENDS_WITHIN_S) -> None:
    def has_ended() -> Any:
        return client.get_job_status(client_id) in {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED}

    wait_until(has_ended, within_s, lambda: f"{client.get_job_info(client_id)}\n{service.log()}")


def _clean() -> dict[str, str]:
    """The environment without what would steer Ray or Muster."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MUSTER_"))}
