"""What a cluster answers is somebody else's word."""

import httpx
import pytest

from cluster_groups.model.cluster import Endpoint
from rayjobs.gateway.base import ClusterUnreachable, RayStatus, RequestRefused
from rayjobs.gateway.ray_jobs import RayJobsGateway

HEAD = Endpoint(address="http://127.0.0.1:8265", token="t")


def gateway(answer: httpx.Response) -> RayJobsGateway:
    return RayJobsGateway(httpx.AsyncClient(transport=httpx.MockTransport(lambda _request: answer)))


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        ("http://127.0.0.3:52365", "http://127.0.0.3:52365"),
        ("http://[fd00::1]:80", "http://[fd00::1]:80"),
        ("http://169.254.169.254/latest/meta-data#", None),
        ("http://169.254.169.254:80", None),
        ("http://evil.example:80", None),
        ("https://127.0.0.3:52365", None),
        ("http://127.0.0.3:52365/elsewhere?", "http://127.0.0.3:52365"),
        ("http://user@127.0.0.3:52365", "http://127.0.0.3:52365"),
        ("nonsense", None),
        (None, None),
    ],
)
async def test_only_what_looks_like_a_node_agent_is_asked_for_logs(told: str | None, believed: str | None) -> None:
    body = {"status": "RUNNING", "driver_agent_http_address": told}
    job = await gateway(httpx.Response(200, json=body)).look(HEAD, "run_1-a1")
    assert job is not None
    assert (job.status, job.driver_address) == (RayStatus.RUNNING, believed)


@pytest.mark.parametrize(
    ("told", "believed"),
    [(1_790_000_000_250, 1_790_000_000.25), (0, None), (None, None), ("soon", None), (10**30, None)],
)
async def test_an_end_is_a_time_or_unknown(told: object, believed: float | None) -> None:
    job = await gateway(httpx.Response(200, json={"status": "FAILED", "end_time": told})).look(HEAD, "run_1-a1")
    assert job is not None
    assert (job.ended_at.timestamp() if job.ended_at else None) == believed


@pytest.mark.parametrize("answer", [{"text": "<html>"}, {"json": []}, {"json": {"status": "QUEUED"}}])
async def test_something_else_at_the_address_is_no_answer_of_the_cluster(answer: dict[str, object]) -> None:
    with pytest.raises(ClusterUnreachable):
        await gateway(httpx.Response(200, **answer)).look(HEAD, "run_1-a1")  # type: ignore[arg-type]


@pytest.mark.parametrize("call", ["look", "stop", "forget"])
async def test_only_in_rays_own_words_a_job_is_unknown(call: str) -> None:
    rays = gateway(httpx.Response(404, text="Job run_1-a1 does not exist"))
    assert await getattr(rays, call)(HEAD, "run_1-a1") is None
    with pytest.raises(ClusterUnreachable):
        await getattr(gateway(httpx.Response(404, text="404 page not found")), call)(HEAD, "run_1-a1")


async def test_a_node_agent_that_sends_whole_files_is_refused() -> None:
    with pytest.raises(RequestRefused):
        await gateway(httpx.Response(200, content=b"x" * 100)).read_log(
            HEAD, "http://127.0.0.3:1", "f", offset=0, limit_bytes=10
        )
