"""Runs on the command line: which are listed, many stopped at once, why one waits."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli_stand_in import Cli, Json, StandIn, a_stand_in, problem


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


def test_several_states_and_one_of_all_else(server: StandIn, cli: Cli) -> None:
    server.on("GET", "/runs", {"items": [], "next_cursor": None})
    cli("run", "list", "--state", "FAILED", "--state", "STOPPED")
    assert server.requests[-1].pairs == [("state", "FAILED"), ("state", "STOPPED")]
    refused = cli("run", "list", "--job", "a", "--job", "b")
    assert (refused.exit_code, len(server.requests)) == (2, 1)
    assert "'--job': it can be given only once" in refused.stderr


def test_many_are_stopped_whatever_becomes_of_one(server: StandIn, cli: Cli) -> None:
    for name in ("a", "c"):
        server.on("POST", f"/runs/{name}/stop", {"id": name, "state": "STOPPING"})
    server.on("POST", "/runs/d/stop", problem(403, "NOT_YOURS"))
    result = cli("run", "stop", "a", "b", "c", "d", "-o", "name")
    assert (result.exit_code, result.stdout) == (3, "a\nc\n")
    assert "error: NOT_FOUND: b: " in result.stderr
    assert "error: NOT_YOURS: d: " in result.stderr
    assert [one["id"] for one in json.loads(cli("run", "stop", "a", "c", "-o", "json").stdout)["items"]] == ["a", "c"]


def test_why_says_whose_move_it_is(server: StandIn, cli: Cli) -> None:
    condition: Json = {
        "code": "QUOTA_INSUFFICIENT",
        "detail": "4 of 4 CPUs used",
        "advice": "wait or ask",
        "owner": "quota",
    }
    condition |= {"position": 2, "ahead": ["run_0"], "since": "2026-01-01T00:00:00Z"}
    run = {"id": "run_1", "state": "WAITING", "condition": condition, "end": None}
    candidates = [{"cluster": "c1", "eligible": False, "reason": "CORDONED"}]
    decision = {"outcome": "waiting", "because": "no room", "candidates": candidates}
    server.on("GET", "/runs/run_1", run)
    server.on("GET", "/runs/run_1/decisions", {"items": [decision], "next_cursor": None})
    out = cli("run", "why", "run_1").stdout
    for told in (
        "QUOTA_INSUFFICIENT: 4 of 4",
        "whoever owns the quota",
        "position 2\n",
        "right before it: run_0\n",
        "wait or ask",
        "CORDONED",
    ):
        assert told in out
    body = json.loads(cli("run", "why", "run_1", "-o", "json").stdout)
    assert body["condition"] == condition
    assert body["decisions"] == [decision]
