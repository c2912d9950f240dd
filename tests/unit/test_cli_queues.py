"""What the command line says of waiting: queues, decisions, simulated waits, and events in a line each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli_stand_in import Cli, Json, StandIn, a_stand_in

HELD: Json = {"code": "GANG_PARTIAL", "params": {"held_on": "lab"}}
QUEUED: Json = {"run": "run_1", "job": "ddp", "position": 1, "effective_priority": 5, "condition": HELD}
TRACE = """\
clusters: [{name: c, nodes: [{cpu: 2}]}]
workloads:
- {name: fits, cluster: c, cpu: 1, runtime_s: 10}
- {name: large, cluster: c, cpu: 3, runtime_s: 10}
"""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (["quota", "group", "queue", "lab"], "/resource-groups/lab/queue"),
        (["cluster", "queue", "lab"], "/clusters/lab/queue"),
        (["group", "queue", "lab"], "/cluster-groups/lab/queue"),
    ],
)
def test_a_queue_tells_for_whom_capacity_is_held(server: StandIn, cli: Cli, command: list[str], path: str) -> None:
    server.on("GET", path, {"items": [QUEUED], "next_cursor": None})
    header, row = cli(*command).stdout.splitlines()
    assert header.split("  ")[0] == "POSITION"
    assert row.split() == ["1", "run_1", "ddp", "5", "GANG_PARTIAL", "lab", "-"]


def test_a_decision_to_wait_says_for_what(server: StandIn, cli: Cli) -> None:
    condition = {"code": "QUEUED_BEHIND", "detail": "Others come first."}
    decision = {"evaluated_at": "2026-01-02T03:04:05Z", "outcome": "waiting", "reason": condition, "candidates": []}
    server.on("GET", "/runs/run_1", {"id": "run_1", "state": "WAITING", "condition": condition})
    server.on("GET", "/runs/run_1/decisions", {"items": [decision], "next_cursor": None})
    last = cli("run", "why", "run_1").stdout.splitlines()[-1]
    assert last == "2026-01-02 03:04:05Z  waiting  QUEUED_BEHIND  Others come first."


def test_what_never_started_has_waited_for_no_time_that_can_be_told(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "trace.yaml"
    file.write_text(TRACE)
    rows = {line.split()[0]: line.split()[1:] for line in cli("simulate", str(file)).stdout.splitlines()[1:3]}
    assert rows["fits"] == ["1", "1", *["0.0", "s"] * 4, "-"]
    assert rows["large"] == ["1", "0", "-", "-", "-", "-", "1", "NEVER_FITS"]


def test_an_event_takes_one_line(server: StandIn, cli: Cli) -> None:
    dump = ["*** SIGABRT received ***", *(f"    @ 0x{at:x} ray::raylet::Node()" for at in range(40))]
    params: Json = {"code": "NODE_PROCESS_EXITED", "params": {"node": "head", "last_lines": ["", "---", *dump]}}
    event = {"id": "evt_1", "at": "2026-01-02T03:04:05Z", "type": "FAILED", "actor": "system", "params": params}
    server.on("GET", "/clusters/lab/events", {"items": [event], "next_cursor": None})
    _, row = cli("cluster", "events", "lab").stdout.splitlines()
    assert row.endswith("code=NODE_PROCESS_EXITED,params=node=head,last_lines=*** SIGABRT received *** …")
    assert "ray::raylet::Node" in cli("cluster", "events", "lab", "-o", "json").stdout
