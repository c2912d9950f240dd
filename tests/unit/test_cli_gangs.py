"""Multi-task jobs and usage on the command line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli_stand_in import Cli, Json, Reply, Request, StandIn, a_stand_in

GROUP: Json = {
    "name": "trainer",
    "count": 2,
    "cpu": 1.0,
    "memory_gib": 2.0,
    "gpu": 0,
    "gpu_type": None,
    "entrypoint": "python train.py --rank ${PAI_TASK_INDEX} " + "--flag " * 40,
    "min_succeeded": None,
    "min_failed": None,
}
JOB: Json = {"id": "job_1", "name": "ddp", "revision": 1, "task_groups": [GROUP], "warnings": []}
SPEC = """\
name: ddp
cluster: lab
task_groups:
- name: trainer
  count: 2
  cpu: 1
  entrypoint: |
    python train.py --rank ${PAI_TASK_INDEX}
"""
COUNTS = {"waiting": 0, "running": 1, "succeeded": 0, "failed": 1, "stopped": 0}
RUN: Json = {
    "id": "run_1",
    "job": "ddp",
    "state": "FAILED",
    "attempts": [{"epoch": 1}],
    "task_groups": [{"name": "trainer", "index": 0, "count": 2, **COUNTS}],
    "end": {"class": "user", "code": "EXIT_NONZERO", "exit_code": 3, "task_group": "trainer", "task": 1},
}
TASK: Json = {
    "group": "trainer",
    "group_index": 0,
    "index": 1,
    "state": "FAILED",
    "exit_code": 3,
    "node_ip": "10.0.0.2",
    "container_ip": "172.16.0.2",
    "host_ip": "10.0.0.2",
    "started_at": "2026-01-02T03:04:05Z",
    "ended_at": None,
}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        server.on("POST", "/jobs", lambda request: Reply(status=201, body=JOB | request.body))
        server.on("GET", "/jobs/ddp", JOB)
        server.on("GET", "/runs/run_1", RUN)
        server.on("GET", "/runs/run_1/logs", _log)
        yield server


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


def _log(request: Request) -> Reply:
    whose = ".".join(request.query.get(name, "-") for name in ("task_group", "task", "attempt"))
    offset = int(request.query.get("offset") or 0)
    text = f"log of {whose}\n"[offset:]
    return Reply(body={"offset": offset, "next_offset": offset + len(text), "data": text, "complete": True})


class TestJobs:
    def test_a_file_holds_the_task_groups(self, server: StandIn, cli: Cli, tmp_path: Path) -> None:
        file = tmp_path / "job.yaml"
        file.write_text(SPEC)
        assert cli("job", "create", "-f", str(file), "--set", "placement_strategy=PACK").exit_code == 0
        (request,) = server.asked("POST", "/jobs")
        assert request.body["task_groups"] == [
            {"name": "trainer", "count": 2, "cpu": 1, "entrypoint": "python train.py --rank ${PAI_TASK_INDEX}\n"}
        ]
        assert (request.body["run_mode"], request.body["placement_strategy"]) == ("cluster", "PACK")

    def test_groups_are_a_table_of_what_they_say(self, cli: Cli) -> None:
        lines = cli("job", "show", "ddp").stdout.splitlines()
        header = lines[lines.index("task_groups") + 1]
        assert header.split("  ")[0] == "NAME"
        assert ("MEMORY GIB" in header, "GPU TYPE" in header) == (True, False)
        assert "GPU TYPE" in cli("job", "show", "ddp", "-o", "wide").stdout


class TestRuns:
    def test_tasks(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs/run_1/tasks", {"items": [TASK], "next_cursor": None})
        header, row = cli("run", "tasks", "run_1").stdout.splitlines()
        assert header.split() == ["GROUP", "TASK", "STATE", "EXIT", "CODE", "ADDRESS", "HOST", "STARTED", "ENDED"]
        assert row.split()[:6] == ["trainer", "1", "FAILED", "3", "172.16.0.2", "10.0.0.2"]

    def test_tasks_of_an_earlier_attempt(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs/run_1/tasks", {"items": [TASK], "next_cursor": None})
        assert cli("run", "tasks", "run_1", "--attempt", "2").exit_code == 0
        assert server.requests[-1].query == {"attempt": "2"}

    @pytest.mark.parametrize(
        ("options", "whose"),
        [
            ([], "-.-.-"),
            (["--task-group", "trainer", "--task", "1"], "trainer.1.-"),
            (["--task-group", "trainer"], "trainer.0.-"),
            (["--task", "1", "--attempt", "2"], "-.1.2"),
            (["--task-group", "trainer", "--task", "1", "--tail", "5"], "trainer.1.-"),
        ],
    )
    def test_logs_of_one_task(self, cli: Cli, options: list[str], whose: str) -> None:
        assert cli("run", "logs", "run_1", *options).stdout == f"log of {whose}\n"

    def test_following_one_task(self, cli: Cli) -> None:
        result = cli("run", "logs", "-f", "run_1", "--task-group", "trainer", "--task", "1")
        assert (result.exit_code, result.stdout) == (1, "log of trainer.1.1\n")

    def test_the_end_shows_the_log_of_the_task_that_made_it(self, cli: Cli) -> None:
        for command in (["wait", "run_1"], ["logs", "-f", "run_1"]):
            told = cli("run", *command).stderr
            assert "last lines of the log of task 1 of trainer, which ended it:\nlog of trainer.1.-\n" in told
        following_it = cli("run", "logs", "-f", "run_1", "--task-group", "trainer", "--task", "1")
        assert "last lines" not in following_it.stderr

    def test_why_names_that_task(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs/run_1/decisions", {"items": [], "next_cursor": None})
        out = cli("run", "why", "run_1").stdout
        assert "  task that decided it: trainer 1\n" in out
        assert "  its log: muster run logs run_1 --task-group trainer --task 1\n" in out

    def test_how_many_tasks_are_where(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/runs", {"items": [RUN], "next_cursor": None})
        assert "running=1,failed=1" in cli("run", "list", "-o", "wide").stdout
        assert "TASKS" not in cli("run", "list").stdout


class TestUsage:
    def rows(self) -> Json:
        nothing = {"cpu_seconds": 0, "memory_gib_seconds": 0, "gpu_seconds": {}}
        waste = {"gang_hold": {**nothing, "cpu_seconds": 1800}, "cold_start": nothing, "failed_attempts": nothing}
        row: dict[str, Any] = {"key": "default", "runs": 3, "waste": waste}
        return {
            "items": [{**row, "cpu_seconds": 7200, "memory_gib_seconds": 100, "gpu_seconds": {"H100": 3600}}],
            "next_cursor": None,
        }

    def test_hours_for_people(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/usage", self.rows())
        header, row = cli("usage", "list").stdout.splitlines()
        assert header.split("  ")[0] == "KEY"
        assert row.split() == ["default", "3", "2", "0.03", "H100=1", "0.5", "-", "-"]

    def test_what_is_asked(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/usage", self.rows())
        cli("usage", "list", "--from", "2026-01-02", "--to", "2026-01-03T12:00:00Z", "--group-by", "day", "-o", "json")
        (request,) = server.asked("GET", "/usage")
        assert request.query == {"from": "2026-01-02T00:00:00Z", "to": "2026-01-03T12:00:00Z", "group_by": "day"}

    def test_csv(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", "/usage", Reply(raw=b"key,runs\r\na,1\r\n", headers={"Content-Type": "text/csv"}))
        assert cli("usage", "csv", "--group-by", "job").stdout_bytes == b"key,runs\r\na,1\r\n"
        (request,) = server.asked("GET", "/usage")
        assert (request.headers["accept"], request.query) == ("text/csv", {"group_by": "job"})
