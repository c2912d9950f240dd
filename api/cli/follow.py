"""Telling a run to people: what it waits for, its phases, its log, its end.

The log goes to standard output; everything else is beside it, on standard error. With `-o json` and its like standard
output is the resource's, and the log moves over.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from api.cli.ansi import EscapeFilter
from api.cli.errors import ExitCode
from api.cli.session import Session
from api.client import Json
from api.client.follow import RunFollower
from api.client.runs import PAGE_BYTES
from api.client.watch import Changed, Event, Interrupted, LogCutShort, LogText, Resumed, is_final

_LAST_LINES = 20
_LOG_PATIENCE_S = 5.0
_LOG_PAUSE_S = 0.2
_LONGEST_LINE = 2**20
"""A line that never ends must not fill the memory."""


class LogPrinter:
    def __init__(self, session: Session) -> None:
        self.stream = sys.stdout if session.output == "table" else sys.stderr
        self.has_printed = False
        self._at_line_start = True
        self._filter = EscapeFilter(colours=session.has_colours(self.stream))

    def print(self, text: str) -> None:
        shown = self._filter.feed(text)
        if shown:
            self.stream.write(shown)
            self.stream.flush()
            self.has_printed = True
            self._at_line_start = shown.endswith("\n")

    def end_line(self) -> None:
        """Before anything else is told, on a terminal that shows both streams."""
        if not self._at_line_start and self.stream.isatty():
            self.stream.write("\n")
            self._at_line_start = True


class Teller:
    """Tells changes of a run, each thing once."""

    def __init__(self, session: Session, log: LogPrinter | None = None) -> None:
        self._session = session
        self._log = log
        self._told: object = None
        self._phases: dict[str, object] = {}
        self.run: Json | None = None

    def tell(self, event: Event) -> None:
        match event:
            case LogText() if self._log:
                self._log.print(event.data)
            case Changed():
                self.run = event.run
                if not is_final(event.run):
                    self._tell_change(event.run)
            case Interrupted():
                self._say(self._session.say("interrupted", reason=event.reason))
            case Resumed():
                self._say(self._session.say("resumed"))
            case LogCutShort():
                self._say(self._session.say("log_cut_short"))

    def _tell_change(self, run: Json) -> None:
        line = state_line(self._session, run)
        if line != self._told:
            self._told = line
            self._say(line)
        for phase in run.get("phases") or ():
            face = (phase.get("state"), phase.get("detail"))
            if (
                phase.get("started_at")
                and phase["name"] not in {"queue", "running"}
                and self._phases.get(phase["name"]) != face
            ):
                self._phases[phase["name"]] = face
                self._say("  ".join(["", phase["name"], phase["state"], *_nodes(phase)]))

    def _say(self, line: str) -> None:
        if self._log:
            self._log.end_line()
        click.echo(line, err=True)


def follow(session: Session, run_id: str, log: LogPrinter, **where: Any) -> None:
    """Follow a run to its end and leave with its exit code."""
    teller = Teller(session, log)
    follower = RunFollower(session.muster.runs, run_id, **where)
    with detaching(session, run_id, lambda: follow_command(run_id, follower)):
        for event in follower.events():
            teller.tell(event)
    log.end_line()
    run = teller.run or session.muster.runs.get(run_id)
    if session.output != "table":
        session.out.details(run, "id")
    conclude(session, run, has_log=log.has_printed)


def conclude(session: Session, run: Json, *, has_log: bool) -> None:
    """Say how the run ended, and leave with 0 only if it succeeded."""
    succeeded = run["state"] == "SUCCEEDED"
    click.echo(end_line(session, run), err=True)
    end = run.get("end") or {}
    if not succeeded and end.get("advice"):
        click.echo(f"{session.say('hint')}: {end['advice']}", err=True)
    if not succeeded and not has_log:
        _tell_last_lines(session, run)
    command = f"muster run show {run['id']}" if succeeded else f"muster run why {run['id']}"
    session.tell("next", command=command)
    if not succeeded:
        raise click.exceptions.Exit(ExitCode.RUN_FAILED)


def state_line(session: Session, run: Json) -> str:
    condition = run.get("condition")
    parts = [run["state"]]
    if run.get("cluster"):
        parts.append(run["cluster"])
    if condition:
        parts.append(f"{condition['code']}: {condition.get('detail') or ''}")
        parts += places(session, condition)
    return "  ".join(parts)


def places(session: Session, condition: Json) -> Iterator[str]:
    if condition.get("position") is not None:
        yield session.say("position", position=condition["position"])
    ahead = condition.get("ahead")
    if ahead is not None:
        yield session.say("ahead", ahead=len(ahead) if isinstance(ahead, list) else ahead)


def end_line(session: Session, run: Json) -> str:
    end = run.get("end") or {}
    parts = [session.say("ended", run=run["id"], state=run["state"])]
    if end:
        parts.append(f"{end.get('class')}/{end.get('code')}")
    if end.get("exit_code") is not None:
        parts.append(session.say("exit_code", code=end["exit_code"]))
    if end.get("detail"):
        parts.append(end["detail"])
    return "  ".join(parts)


def _nodes(phase: Json) -> Iterator[str]:
    detail = phase.get("detail") or {}
    if detail.get("nodes_wanted"):
        yield f"{detail.get('nodes_up', 0)}/{detail['nodes_wanted']}"


def log_pages(session: Session, run_id: str, *, attempt: int | None, offset: int) -> Iterator[Json]:
    """What there is of a log now, page by page."""
    while True:
        page = session.muster.runs.log(run_id, attempt=attempt, offset=offset, limit_bytes=PAGE_BYTES)
        yield page
        if page["complete"] or page["next_offset"] <= offset:
            return
        offset = page["next_offset"]


def tail(pages: Iterator[Json], count: int) -> tuple[str, int | None]:
    """The last lines, and the offset behind them."""
    lines: deque[str] = deque(maxlen=count)
    rest, offset = "", None
    for page in pages:
        *whole, rest = (rest + page["data"]).split("\n")
        lines.extend(f"{line}\n" for line in whole)
        rest = rest[-_LONGEST_LINE:]
        offset = page["next_offset"]
    if rest:
        lines.append(rest)
    return "".join(lines), offset


@contextmanager
def detaching(session: Session, run_id: str, command: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C ends the watching, not the run."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)
        session.tell("detached", run=run_id, command=command())
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def follow_command(run_id: str, follower: RunFollower) -> str:
    """Goes on exactly behind the last byte that was printed."""
    where = f" --attempt {follower.epoch} --since {follower.offset}" if follower.epoch and follower.offset else ""
    return f"muster run logs -f {run_id}{where}"


def _tell_last_lines(session: Session, run: Json) -> None:
    if not run.get("attempts"):
        return
    text, _ = tail(_whole_log(session, run["id"]), _LAST_LINES)
    if text.strip():
        session.tell("last_lines")
        click.echo(EscapeFilter(colours=False).feed(text).rstrip("\n"), err=True)


def _whole_log(session: Session, run_id: str) -> Iterator[Json]:
    """A run ends a moment before the rest of its log is there."""
    deadline = time.monotonic() + _LOG_PATIENCE_S
    offset, complete = 0, False
    while not complete and time.monotonic() < deadline:
        for page in log_pages(session, run_id, attempt=None, offset=offset):
            yield page
            offset, complete = page["next_offset"], page["complete"]
        if not complete:
            time.sleep(_LOG_PAUSE_S)
