"""Leases on real Ray: what is cut off ends by itself and wholly, and a cluster tells whether it could have one."""

import signal
from collections.abc import Iterator

import httpx
import pytest

from cluster_groups.callback import HttpCallbackProbe
from cluster_groups.model.cluster import Endpoint
from rayjobs.dispatch import EXIT_LEASE_LOST
from rayjobs.runner.clock import now_s
from tests.builders.leaky import Leak
from tests.builders.lease_server import LeaseServer, lease_server
from tests.builders.waiting import wait_until
from tests.contract.gang_host import GRACE_S, Gang, GangHost, a_group, gang_host
from tests.contract.local_lab import small_group, until

pytestmark = pytest.mark.ray
TTL_S = 8
SLACK_S = 4
FOREVER = "sleep 300"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangHost]:
    workers = small_group(cpu=2, min_instances=2, max_instances=2)
    with gang_host(tmp_path_factory.mktemp("leases"), workers) as started:
        yield started


@pytest.fixture
def server() -> Iterator[LeaseServer]:
    with lease_server() as server:
        server.ttl_s = TTL_S
        yield server


@pytest.fixture
def gang(host: GangHost, server: LeaseServer, leaks: list[Leak]) -> Gang:
    groups = [a_group(leak.command(FOREVER), name=f"g{at}") for at, leak in enumerate(leaks)]
    gang = Gang(host, *groups, placement_strategy="STRICT_SPREAD", lease=server.terms())
    gang.wait_until(lambda: all(leak.all_started() for leak in leaks))
    return gang


def test_a_gang_that_is_cut_off_ends_by_itself(gang: Gang, server: LeaseServer, leaks: list[Leak]) -> None:
    renewed = len(server.asked)
    wait_until(lambda: len(server.asked) > renewed, TTL_S)
    began_at = now_s()
    wait_until(lambda: now_s() - began_at > TTL_S)  # so it lived on what it was passed, not on its first lease
    assert all(leak.survivors() for leak in leaks)
    server.is_gone = True
    gone_at = now_s()
    verdict = gang.wait_ended()
    assert now_s() - gone_at < TTL_S + GRACE_S + SLACK_S
    assert (verdict["end_class"], verdict["code"], verdict["exit_code"]) == ("lost", "LEASE_LOST", EXIT_LEASE_LOST)
    assert gang.info()["driver_exit_code"] == EXIT_LEASE_LOST
    assert [leak.survivors() for leak in leaks] == [{}, {}]
    assert {how for how, _ in gang.ends().values()} == {"stopped"}


def test_a_task_that_is_not_told_ends_by_itself(gang: Gang, leaks: list[Leak]) -> None:
    """Its actor is frozen; job and Muster go on talking."""
    actor, guard = gang.actor(0), gang.guard(0)
    actor.send_signal(signal.SIGSTOP)
    guard.wait(TTL_S + GRACE_S + SLACK_S)
    assert leaks[0].survivors() == {}
    actor.send_signal(signal.SIGCONT)
    assert gang.wait_ended()["code"] == "LEASE_LOST"
    assert leaks[1].survivors() == {}


async def test_a_cluster_tells_whether_it_can_call_back(host: GangHost, server: LeaseServer) -> None:
    token = host.http.headers["Authorization"].partition(" ")[2]
    endpoint = Endpoint(address=str(host.http.base_url), token=token)
    async with httpx.AsyncClient(trust_env=False) as http:
        probe = HttpCallbackProbe(http, server.url)

        async def told() -> list[bool]:
            answer = await probe.can_call_back(endpoint)
            return [] if answer is None else [answer]

        assert await until(told, 30) == [True]
        server.is_gone = True
        assert await until(told, 30) == [False]
        server.is_gone = False
        assert await until(told, 30) == [True]
