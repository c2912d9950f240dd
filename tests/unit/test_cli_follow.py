"""Following a run: every byte once, in order, whatever breaks; and an end that says how it went."""

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.client.errors import ServerUnreachable, WaitTimedOut
from api.client.follow import RunFollower
from api.client.muster import Muster
from api.client.watch import Changed, Event, Interrupted, LogCutShort, LogText, Resumed, RunWatch, has_reached
from rayjobs.model.run import RunState
from tests.unit.cli_stand_in import Cli, Drop, Json, Reply, Request, StandIn, a_stand_in, chunk, problem, sse

RUN_ID = "run_1"
LOG = "".join(f"line {number} 日志\n" for number in range(200))


def a_run(state: str = "RUNNING", **more: Any) -> Json:
    run = {
        "id": RUN_ID,
        "job": "demo",
        "state": state,
        "attempts": [{"epoch": 1}],
        "started_at": "2026-01-01T00:00:00Z",
    }
    return run | {"condition": None, "phases": [], "cluster": "c1", "end": None} | more


def an_end(end_class: str = "completed", code: str = "ALL_TASKS_DONE", exit_code: int = 0, **more: Any) -> Json:
    return {"class": end_class, "code": code, "exit_code": exit_code, "detail": "about the end", "advice": None} | more


class AnsweredRun:
    """A run whose log grows with every piece that is read, and that ends when all of it was."""

    def __init__(self, server: StandIn, log: str = LOG, *, piece_bytes: int = 1000, end: Json | None = None) -> None:
        self.log = log.encode()
        self.written = 0
        self.piece_bytes = piece_bytes
        self.end = end or an_end()
        self.breaks: Iterator[str] = itertools.repeat("cleanly")
        server.on("GET", f"/runs/{RUN_ID}", self.get)
        server.on("GET", f"/runs/{RUN_ID}/logs", self.page)
        server.on("GET", f"/runs/{RUN_ID}/logs/stream", self.stream)

    @property
    def is_over(self) -> bool:
        return self.written == len(self.log)

    def get(self, _request: Request) -> Reply:
        state = "SUCCEEDED" if self.end["class"] == "completed" else "FAILED"
        return Reply(body=a_run(state, end=self.end) if self.is_over else a_run())

    def page(self, request: Request) -> Reply:
        piece = self._piece(int(request.query["offset"]), int(request.query["limit_bytes"]))
        return Reply(body=piece | {"complete": piece["next_offset"] == len(self.log)})

    def stream(self, request: Request) -> Reply:
        offset = int(request.query["offset"])
        sent = b""
        for _ in range(2):
            self.written = min(len(self.log), self.written + self.piece_bytes)
            piece = self._piece(offset)
            offset = piece["next_offset"]
            sent += sse("log", piece)
        match next(self.breaks):
            case "in the middle":
                raise Drop(sent[: len(sent) * 2 // 3])
            case "between events":
                raise Drop(sent)
            case "before anything":
                raise Drop
        if self.is_over:
            sent += sse("end", {"next_offset": offset})
        raise Drop(sent + chunk(b""))

    def _piece(self, offset: int, limit_bytes: int = 2**20) -> Json:
        data = self.log[offset : min(self.written, offset + limit_bytes)]
        while data and (data[-1] & 0xC0 == 0x80 or data[-1] >= 0xC0):  # whole characters only
            data = data[:-1]
        return {"offset": offset, "next_offset": offset + len(data), "data": data.decode()}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with a_stand_in() as server:
        yield server


@pytest.fixture
def muster(server: StandIn) -> Iterator[Muster]:
    with Muster(server.address) as muster:
        yield muster


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    return Cli(server, tmp_path)


def a_follower(muster: Muster, **where: Any) -> RunFollower:
    seconds = itertools.count()
    return RunFollower(muster.runs, RUN_ID, clock=lambda: float(next(seconds)), sleep=lambda _seconds: None, **where)


def text_of(events: list[Event]) -> str:
    return "".join(event.data for event in events if isinstance(event, LogText))


class TestLog:
    @pytest.mark.parametrize("broken", ["in the middle", "between events", "before anything"])
    def test_a_connection_that_breaks_costs_no_byte_and_repeats_none(
        self, server: StandIn, muster: Muster, broken: str
    ) -> None:
        run = AnsweredRun(server)
        run.breaks = itertools.cycle([broken, "cleanly"])
        events = list(a_follower(muster).events())
        assert text_of(events) == LOG
        assert any(isinstance(event, Interrupted) for event in events)
        assert any(isinstance(event, Resumed) for event in events)

    def test_it_goes_on_at_an_offset(self, server: StandIn, muster: Muster) -> None:
        AnsweredRun(server)
        start = len("".join(LOG.splitlines(keepends=True)[:3]).encode())
        assert text_of(list(a_follower(muster, offset=start).events())) == LOG[LOG.index("line 3 ") :]

    def test_a_stream_that_skips_is_not_believed(self, server: StandIn, muster: Muster) -> None:
        run = AnsweredRun(server)
        honest = run.stream

        def skipping(request: Request) -> Reply:
            with pytest.raises(Drop):
                honest(request)
            raise Drop(sse("log", {"offset": 10**6, "next_offset": 10**6 + 5, "data": "later"}) + chunk(b""))

        server.on("GET", f"/runs/{RUN_ID}/logs/stream", skipping)
        assert text_of(list(a_follower(muster).events())) == LOG

    def test_every_attempt_is_read_from_its_beginning(self, server: StandIn, muster: Muster) -> None:
        attempts = [{"epoch": 1}, {"epoch": 2}]
        server.on("GET", f"/runs/{RUN_ID}", a_run("FAILED", attempts=attempts, end=an_end("user")))
        logs = {"1": "first\n", "2": "second\n"}

        def page(request: Request) -> Reply:
            data = logs[request.query["attempt"]][int(request.query["offset"]) :]
            offset = int(request.query["offset"])
            return Reply(body={"offset": offset, "next_offset": offset + len(data), "data": data, "complete": True})

        server.on("GET", f"/runs/{RUN_ID}/logs", page)
        assert text_of(list(a_follower(muster).events())) == "first\nsecond\n"
        assert text_of(list(a_follower(muster, after=1).events())) == "second\n"
        assert text_of(list(a_follower(muster, attempt=1).events())) == "first\n"

    def test_a_log_that_never_ends_does_not_hold_an_ended_run(self, server: StandIn, muster: Muster) -> None:
        server.on("GET", f"/runs/{RUN_ID}", a_run("FAILED", end=an_end("lost", "HEAD_LOST")))
        server.on("GET", f"/runs/{RUN_ID}/logs", {"offset": 0, "next_offset": 0, "data": "", "complete": False})
        assert isinstance(list(a_follower(muster).events())[-1], LogCutShort)

    def test_a_refusal_ends_it(self, server: StandIn, muster: Muster) -> None:
        AnsweredRun(server)
        server.on("GET", f"/runs/{RUN_ID}", problem(403, "DENIED"))
        with pytest.raises(Exception, match="DENIED"):
            list(a_follower(muster).events())


class TestWatch:
    def test_each_change_is_told_once(self, server: StandIn, muster: Muster) -> None:
        waiting = {"code": "QUEUED_BEHIND", "detail": "one ahead", "position": 2}
        states = iter(
            [a_run("WAITING", condition=waiting)] * 3
            + [a_run("WAITING", condition=waiting | {"position": 1, "detail": "next"})] * 2
            + [a_run("RUNNING"), a_run("SUCCEEDED")]
        )
        server.on("GET", f"/runs/{RUN_ID}", lambda _request: Reply(body=next(states)))
        watch = RunWatch(muster.runs, RUN_ID, sleep=lambda _seconds: None)
        changes = [event.run for event in watch.changes() if isinstance(event, Changed)]
        assert [run["state"] for run in changes] == ["WAITING", "WAITING", "RUNNING", "SUCCEEDED"]

    def test_time_is_up(self, server: StandIn, muster: Muster) -> None:
        server.on("GET", f"/runs/{RUN_ID}", a_run())
        ticks = itertools.count()
        watch = RunWatch(
            muster.runs, RUN_ID, timeout_s=5, clock=lambda: float(next(ticks)), sleep=lambda _seconds: None
        )
        with pytest.raises(WaitTimedOut):
            list(watch.changes())

    def test_patience_has_an_end(self, server: StandIn, muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("api.client.http.RETRY_DELAYS_S", ())
        server.on("GET", f"/runs/{RUN_ID}", a_run())
        ticks = itertools.count(step=200)
        watch = RunWatch(muster.runs, RUN_ID, clock=lambda: float(next(ticks)), sleep=lambda _seconds: None)
        events = watch.changes()
        next(events)
        server.on("GET", f"/runs/{RUN_ID}", _drop)
        with pytest.raises(ServerUnreachable):
            list(events)

    @pytest.mark.parametrize(
        ("run", "target", "reached"),
        [
            (a_run("WAITING"), RunState.RUNNING, False),
            (a_run("RUNNING"), RunState.RUNNING, True),
            (a_run("SUCCEEDED"), RunState.RUNNING, True),
            (a_run("FAILED", started_at=None), RunState.RUNNING, False),
            (a_run("STOPPING"), RunState.STARTING, True),
            (a_run("RUNNING"), RunState.SUCCEEDED, False),
            (a_run("FAILED"), RunState.SUCCEEDED, False),
        ],
    )
    def test_a_state_is_reached_or_left_behind(self, run: Json, target: RunState, reached: bool) -> None:
        assert has_reached(run, target) is reached


def _drop(_request: Request) -> Reply:
    raise Drop


class TestCommand:
    def test_submit_and_follow_to_a_good_end(self, server: StandIn, cli: Cli) -> None:
        AnsweredRun(server, "one\ntwo\n")
        server.on("POST", "/jobs/demo/runs", Reply(status=201, body=a_run("SUBMITTED")))
        result = cli("run", "submit", "demo", "--follow")
        assert result.exit_code == 0
        assert result.stdout == f"{RUN_ID}\none\ntwo\n"
        assert "SUCCEEDED" in result.stderr
        assert f"muster run show {RUN_ID}" in result.stderr

    def test_a_failed_run_gives_1_its_reason_and_what_to_do(self, server: StandIn, cli: Cli) -> None:
        end = an_end("user", "EXIT_NONZERO", 3, advice="look at the log")
        AnsweredRun(server, "one\ntwo\n", end=end)
        result = cli("run", "logs", "-f", RUN_ID)
        assert result.exit_code == 1
        assert result.stdout == "one\ntwo\n"
        for told in ("user/EXIT_NONZERO", "exit code 3", "about the end", "hint: look at the log", "muster run why"):
            assert told in result.stderr

    def test_what_a_run_waits_for_is_told(self, server: StandIn, cli: Cli) -> None:
        condition = {"code": "QUEUED_BEHIND", "detail": "others first", "position": 3, "ahead": ["run_a", "run_b"]}
        cluster = {"name": "cluster", "state": "active", "started_at": "2026-01-01T00:00:00Z"}
        states = iter(
            [
                a_run("WAITING", condition=condition, attempts=[], cluster=None),
                a_run("STARTING", phases=[cluster | {"detail": {"nodes_up": 1, "nodes_wanted": 2}}], attempts=[]),
                a_run("STOPPED", attempts=[], end=an_end("stopped", "BY_USER")),
            ]
        )
        server.on("POST", "/jobs/demo/runs", Reply(status=201, body=a_run("SUBMITTED")))
        server.on("GET", f"/runs/{RUN_ID}", lambda _request: Reply(body=next(states)))
        result = cli("job", "run", "demo", "--follow")
        assert result.exit_code == 1
        assert "WAITING  QUEUED_BEHIND: others first  position 3\n" in result.stderr
        assert "cluster  active  1/2" in result.stderr
        assert "stopped/BY_USER" in result.stderr

    def test_with_json_the_result_has_standard_output_alone(self, server: StandIn, cli: Cli) -> None:
        AnsweredRun(server, "one\n")
        server.on("POST", "/jobs/demo/runs", Reply(status=201, body=a_run("SUBMITTED")))
        result = cli("run", "submit", "demo", "--follow", "-o", "name")
        assert (result.exit_code, result.stdout) == (0, f"{RUN_ID}\n")
        assert "one\n" in result.stderr

    def test_tail_and_what_follows(self, server: StandIn, cli: Cli) -> None:
        run = AnsweredRun(server, "one\ntwo\nthree\nfour\n", piece_bytes=5)
        run.written = len("one\ntwo\nthree\n")
        assert cli("run", "logs", RUN_ID, "--tail", "2").stdout == "two\nthree\n"
        assert cli("run", "logs", "-f", RUN_ID, "--tail", "1").stdout == "three\nfour\n"

    def test_says_when_the_rest_is_still_to_come(self, server: StandIn, cli: Cli) -> None:
        run = AnsweredRun(server, "one\ntwo\n")
        run.written = len("one\n")
        assert cli("run", "logs", RUN_ID).stderr == ""
        server.on("GET", f"/runs/{RUN_ID}", Reply(body=a_run("SUCCEEDED")))
        result = cli("run", "logs", RUN_ID)
        assert (result.stdout, result.stderr) == ("one\n", "the rest of the log is still on its way: -f waits for it\n")

    @pytest.mark.parametrize(
        ("log", "count", "shown"),
        [
            ("one\n" + "öx" * 2**20 + "\nthree\n", 2, "öx" * 2**20 + "\nthree\n"),
            ("one\n" + "x" * 3 * 2**20, 1, "x" * 3 * 2**20),
            ("x" * (2**20 - 1) + "\ntwo\n", 1, "two\n"),
            ("\n" * 3 * 2**20, 2**20, "\n" * 2**20),
            ("one\ntwo", 0, ""),
            ("one\n", 0, ""),
            ("one\ntwo", 5, "one\ntwo"),
        ],
    )
    def test_the_tail_is_whole_however_long_its_lines(
        self, server: StandIn, cli: Cli, log: str, count: int, shown: str
    ) -> None:
        run = AnsweredRun(server, log)
        run.written = len(run.log)
        assert cli("run", "logs", RUN_ID, "--tail", str(count)).stdout == shown

    def test_ctrl_c_detaches_and_says_how_to_go_on_at_the_same_byte(self, server: StandIn, cli: Cli) -> None:
        run = AnsweredRun(server)
        run.written = 500
        waits_for_more = threading.Event()

        def nothing_new(_request: Request) -> Reply:
            waits_for_more.set()
            return Reply(raw=b"")

        server.on("GET", f"/runs/{RUN_ID}/logs/stream", nothing_new)
        env = {name: value for name, value in cli.env.items() if value is not None}
        command = [sys.executable, "-c", "from api.cli.main import main; main()", "run", "logs", "-f", RUN_ID]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout
            assert process.stderr
            assert waits_for_more.wait(20)
            process.send_signal(signal.SIGINT)
            out = process.stdout.read()
            err = process.stderr.read()
        assert process.returncode == 130
        again = err.split("To follow again: ")[1].split()
        assert again[:4] == ["muster", "run", "logs", "-f"]
        offset = int(again[again.index("--since") + 1])
        assert out.encode() == run.log[:offset]


class TestWait:
    def test_exit_codes(self, server: StandIn, cli: Cli) -> None:
        server.on("GET", f"/runs/{RUN_ID}", a_run("RUNNING"))
        assert cli("run", "wait", RUN_ID, "--for", "RUNNING").exit_code == 0
        assert cli("run", "wait", RUN_ID, "--timeout", "0").exit_code == 124
        server.on("GET", f"/runs/{RUN_ID}", a_run("SUCCEEDED", end=an_end()))
        assert cli("run", "wait", RUN_ID).exit_code == 0
        assert cli("run", "wait", RUN_ID, "--for", "failed").exit_code == 1
        assert cli("run", "wait", "run_9").exit_code == 3

    def test_a_failed_run_shows_its_last_lines(self, server: StandIn, cli: Cli) -> None:
        run = AnsweredRun(server, end=an_end("user", "EXIT_NONZERO", 1))
        run.written = len(run.log)
        result = cli("run", "wait", RUN_ID, "-o", "name")
        assert (result.exit_code, result.stdout) == (1, f"{RUN_ID}\n")
        assert "line 199" in result.stderr
        assert "line 179" not in result.stderr

    def test_a_last_line_that_is_too_long_is_shown_as_cut(self, server: StandIn, cli: Cli) -> None:
        run = AnsweredRun(server, "x" * 2 * 2**20 + "end\n", end=an_end("user", "EXIT_NONZERO", 1))
        run.written = len(run.log)
        (line,) = [line for line in cli("run", "wait", RUN_ID).stderr.splitlines() if line.endswith("xend")]
        assert line.startswith("…x")
        assert len(line) < 2**15
