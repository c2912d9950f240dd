"""What tells others how the service is."""

import json
import re

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from api.wiring import Services


@pytest.fixture
async def outside(app: FastAPI) -> httpx.AsyncClient:
    """Without a token, outside `/api/v1`."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://muster")


async def test_it_is_well(outside: httpx.AsyncClient) -> None:
    assert (await outside.get("/healthz")).json()["ok"] is True
    ready = await outside.get("/readyz")
    assert (ready.status_code, ready.json()["ok"]) == (200, True)
    names = [check["name"] for check in ready.json()["checks"]]
    assert {"database", "blob store", "loop clusters"} <= set(names)


async def test_a_store_that_fails_is_named(
    outside: httpx.AsyncClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_key: str) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(services.blobs, "size_bytes", fail)
    ready = await outside.get("/readyz")
    failed = [check for check in ready.json()["checks"] if not check["ok"]]
    assert (ready.status_code, failed) == (503, [{"name": "blob store", "ok": False, "detail": "not yours"}])


async def test_the_page_of_the_api_needs_no_other_host(outside: httpx.AsyncClient) -> None:
    page = await outside.get("/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 3
    for address in loaded:
        assert address.startswith("/docs/assets/")
        assert (await outside.get(address)).status_code == 200
    assert '"validatorUrl": null' in page.text


async def test_metrics(outside: httpx.AsyncClient, client: httpx.AsyncClient, services: Services) -> None:
    await client.post("/clusters", json={"name": "far", "kind": "attached", "address": "http://127.0.0.1:9"})
    services.metrics.queue_wait_seconds.observe(2)
    services.metrics.attempts_total.labels("completed").inc()
    text = (await outside.get("/metrics")).text
    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["muster_queue_wait_seconds_sum", ()] == 2
    assert samples["muster_attempts_total", ("completed",)] == 1
    assert samples["muster_cluster_health", ("far", "PENDING")] == 1
    assert ("muster_loop_lag_seconds", ("queue",)) in samples


async def test_the_description_is_served(outside: httpx.AsyncClient) -> None:
    described = (await outside.get("/openapi.json")).json()
    assert json.dumps(described).count("application/problem+json") > 50
    assert described["security"] == [{"token": []}]
    assert "text/html" in (await outside.get("/docs")).headers["content-type"]
