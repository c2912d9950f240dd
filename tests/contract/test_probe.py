"""The probe against a real Ray cluster, and against servers that are no such thing."""

import asyncio
import platform
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import pytest

from cluster_groups.model.cluster import HEAD_GROUP, Endpoint, Node, ProbeResult
from cluster_groups.probe import TIMEOUT_S, HttpClusterProbe
from kernel.clock import SystemClock
from kernel.reasons import Reason
from kernel.resources import Resources
from tests.builders.dashboard import a_dashboard
from tests.contract.local_lab import bring_up, local_lab, small_group, small_spec, until

GPUS = {"gpu": 2, "gpu_type": "A100"}
OK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


@pytest.mark.ray
async def test_a_real_cluster_tells_its_nodes_and_what_is_free(tmp_path: Path) -> None:
    async with local_lab(tmp_path / "clusters") as lab:
        spec = small_spec("clu_n", small_group("plain", labels={"rack": "r1"}), small_group("fast", **GPUS))
        endpoint = (await bring_up(lab.backend(), spec)).endpoint
        assert endpoint

        async def told() -> ProbeResult | None:
            seen = await lab.probe.probe(endpoint, with_nodes=True, with_jobs=True)
            assert (seen.failure, seen.is_open) == (None, False)
            return seen if all(node.available for node in seen.nodes or ()) else None

        seen = await until(told, 20)  # usage comes from the monitor, which looks every 5 s
        assert seen.ray_version == version("ray")
        assert seen.python_version == platform.python_version()
        nodes = {node.group: node for node in seen.nodes}
        assert {group: node.total for group, node in nodes.items()} == {
            HEAD_GROUP: Resources(cpu=0, memory_gib=1),
            "plain": Resources(cpu=1, memory_gib=1),
            "fast": Resources(cpu=1, memory_gib=1, gpu={"A100": 2}),
        }
        assert [node.group for node in seen.nodes if node.is_head] == [HEAD_GROUP]
        assert nodes["fast"].available == nodes["fast"].total
        assert len({node.ip for node in seen.nodes}) == 3

        wrong = await lab.probe.probe(replace(endpoint, token="0" * 64), with_nodes=False)
        assert wrong.failure
        assert wrong.failure.code == "PROBE_UNAUTHORIZED"

        psutil.Process(lab.pid("clu_n", "fast-0")).send_signal(signal.SIGKILL)

        async def dead() -> Node | None:
            table = (await lab.probe.probe(endpoint, with_nodes=True)).nodes or ()
            return next((node for node in table if node.group == "fast" and not node.alive), None)

        assert (await until(dead, 10)).available is None


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nConnection: close\r\n\r\n", "PROBE_STATUS"),
        ("HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n", "PROBE_STATUS"),
        ("HTTP/1.1 401 Who\r\nConnection: close\r\n\r\n", "PROBE_UNAUTHORIZED"),
        (OK + "<html>", "PROBE_MALFORMED"),
        (OK + "[]", "PROBE_MALFORMED"),
        ("SSH-2.0-no\r\n", "PROBE_UNREACHABLE"),
    ],
)
async def test_other_servers_are_failures_with_a_code(answer: str, code: str) -> None:
    async with _server({"": answer}) as endpoint:
        assert await _failure(endpoint) == code


async def test_a_cluster_without_its_gcs_is_unhealthy() -> None:
    version = OK + '{"ray_version": "2.60.0"}'
    async with _server({"/api/version": version, "": "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n"}) as endpoint:
        assert await _failure(endpoint) == "GCS_UNHEALTHY"


@pytest.mark.parametrize(
    ("asks", "brings", "code"),
    [("t", "t", None), (None, "t", None), (None, None, None), ("t", None, "PROBE_UNAUTHORIZED")],
)
async def test_whether_a_token_is_asked_for_is_told(asks: str | None, brings: str | None, code: str | None) -> None:
    async with a_dashboard(asks) as address, httpx.AsyncClient(trust_env=False) as client:
        probe = HttpClusterProbe(client, SystemClock())
        seen = await probe.probe(Endpoint(address=address, token=brings), with_nodes=False, with_jobs=True)
    assert (seen.failure.code if seen.failure else None) == code
    assert seen.is_open is (None if code else asks is None)


async def test_a_list_of_jobs_that_fails_is_a_failure() -> None:
    async with a_dashboard("t", jobs=500) as address, httpx.AsyncClient(trust_env=False) as client:
        probe = HttpClusterProbe(client, SystemClock())
        endpoint = Endpoint(address=address, token="t")
        assert (await probe.probe(endpoint, with_nodes=False)).failure is None
        seen = await probe.probe(endpoint, with_nodes=False, with_jobs=True)
    assert seen.failure == Reason(code="PROBE_STATUS", params={"status": 500, "path": "/api/jobs/"})
    assert seen.ray_version == "2.60.0"  # too old a Ray may fail anywhere


async def test_nodes_of_another_shape_are_a_failure_too() -> None:
    async with _server({"": OK + "{}"}) as endpoint:
        assert await _failure(endpoint) == "PROBE_MALFORMED"


async def test_nobody_there_is_unreachable() -> None:
    async with _server({}) as endpoint:
        pass
    assert await _failure(endpoint) == "PROBE_UNREACHABLE"
    assert await _failure(Endpoint(address="http://[broken")) == "PROBE_UNREACHABLE"


async def test_a_server_that_drips_is_given_up_in_time() -> None:
    async with _server({"": OK}, drip_s=0.2) as endpoint:
        async with asyncio.timeout(TIMEOUT_S + 1):
            assert await _failure(endpoint) == "PROBE_TIMEOUT"


async def _failure(endpoint: Endpoint) -> str | None:
    async with httpx.AsyncClient(trust_env=False) as client:
        seen = await HttpClusterProbe(client, SystemClock()).probe(endpoint, with_nodes=True)
    return seen.failure.code if seen.failure else None


@asynccontextmanager
async def _server(answers: dict[str, str], drip_s: float | None = None) -> AsyncIterator[Endpoint]:
    """Answers the raw text of the longest path that fits, at `drip_s` for ever a byte more."""
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        fitting = max((known for known in answers if path.startswith(known)), key=len)
        writer.write(answers[fitting].encode())
        with suppress(ConnectionError):
            while drip_s and not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(drip_s)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Endpoint(address=f"http://127.0.0.1:{port}", token="t")
    await asyncio.gather(*filter(None, serving))
