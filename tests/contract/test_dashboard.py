"""Muster before the dashboard of a real cluster: the page works, and nothing comes out that must not."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.settings import Settings
from api.wiring import Services, prepare, wire
from cluster_groups.model.cluster import Endpoint
from tests.api.dashboard_world import DashboardWorld, dashboard_world
from tests.contract.local_lab import Lab, bring_up, local_lab, small_spec, until

pytestmark = pytest.mark.ray

SECRET = "hunter2-of-this-test"
ENDS_WITHIN_S = 60
LOOKS = (
    "nodes?view=summary",
    "nodes/{node}",
    "logical/actors",
    "events",
    "timezone",
    "api/version",
    "api/cluster_status?format=1",
    "api/jobs/",
    "api/jobs/job-1",
    "api/v0/actors?detail=1",
    "api/v0/jobs?detail=1",
    "api/v0/nodes?detail=1",
    "api/v0/tasks?detail=1",
    "api/v0/workers?detail=1",
    "api/v0/runtime_envs?detail=1",
    "api/v0/cluster_metadata",
    "api/v0/tasks/timeline",
    "api/v0/logs?node_id={node}",
    "api/v0/logs/file?node_id={node}&filename=job-driver-job-1.log",
)
"""What the page and Ray's state commands ask for, with a job on the cluster."""


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    services = wire(Settings(state_dir=tmp_path / "state"))
    await prepare(services)
    yield services
    await services.http.aclose()
    await services.database.close()


async def test_a_real_dashboard(services: Services, tmp_path: Path) -> None:
    async with local_lab(tmp_path / "clusters") as lab:
        endpoint = (await bring_up(lab.backend(), small_spec("clu_d"))).endpoint
        assert endpoint
        await run_job(lab, endpoint)
        async with dashboard_world(services, endpoint) as world, world.client("root") as root:
            await the_page_loads_in_a_browser(world)
            await nothing_secret_is_shown(root, endpoint)
            await nothing_changes(root, lab, endpoint)


async def the_page_loads_in_a_browser(world: DashboardWorld) -> None:
    async with world.client(None, **{"User-Agent": "Mozilla/5.0 (X11)"}) as browser:
        page = await browser.get(world.address + await world.link(), follow_redirects=True)
        assert "<title>Ray Dashboard</title>" in page.text
        linked = re.findall(r'(?:src|href)="\./([^"]+)"', page.text)
        assert [name.rpartition(".")[2] for name in linked] == ["ico", "js", "css"]
        for name in linked:
            assert (await browser.get(name)).status_code == 200
        assert (await browser.get("api/v0/nodes")).json()["result"] is True


async def nothing_secret_is_shown(root: httpx.AsyncClient, endpoint: Endpoint) -> None:
    """Were the visitor's own token sent on, Ray would refuse all of it."""
    nodes = (await root.get("api/v0/nodes")).json()["data"]["result"]["result"]
    for path in LOOKS:
        answer = await root.get(path.format(node=nodes[0]["node_id"]))
        assert answer.status_code == 200, (path, answer.text)
        shown = f"{answer.headers} {answer.text}"
        assert SECRET not in shown, path
        assert str(endpoint.token) not in shown, path
    runtime_env = (await root.get("api/jobs/job-1")).json()["runtime_env"]
    assert runtime_env["env_vars"] == {"KEY": "<redacted>"}


async def nothing_changes(root: httpx.AsyncClient, lab: Lab, endpoint: Endpoint) -> None:
    before = await jobs(lab, endpoint)
    for method, path in (("POST", "api/jobs/"), ("DELETE", "api/jobs/job-1"), ("PUT", "api/packages/gcs/a.zip")):
        answer = await root.request(method, path, json={"entrypoint": "true"})
        assert (answer.status_code, answer.json()["code"]) == (403, "DASHBOARD_NOT_ALLOWED")
    assert await jobs(lab, endpoint) == before


async def run_job(lab: Lab, endpoint: Endpoint) -> None:
    job = {
        "submission_id": "job-1",
        "entrypoint": "python -c 'import ray; ray.init()'",
        "runtime_env": {"env_vars": {"KEY": SECRET}},
    }
    url, headers = f"{endpoint.address}/api/jobs/", {"Authorization": f"Bearer {endpoint.token}"}
    assert (await lab.http.post(url, json=job, headers=headers, timeout=30)).status_code == 200

    async def ended() -> bool:
        (only,) = [one for one in await jobs(lab, endpoint) if one["submission_id"] == "job-1"]
        return only["status"] == "SUCCEEDED"

    await until(ended, ENDS_WITHIN_S)
    shown = (await lab.http.get(url, headers=headers)).text
    assert SECRET in shown  # to programs Ray itself shows it


async def jobs(lab: Lab, endpoint: Endpoint) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    answer = await lab.http.get(f"{endpoint.address}/api/jobs/", headers=headers, timeout=30)
    return list(answer.json())
