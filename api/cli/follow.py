"""Telling a run to people: what it waits for, its phases, its log, its end.

The log goes to standard output; everything else is beside it, on standard error. With `-o json` and its like standard
output is the resource's, and the log moves over.
"""

import re
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
from api.client.runs import DRIVER, PAGE_BYTES, LogOf
from api.client.watch import Changed, Event, Interrupted, LogCutShort, LogText, Resumed, is_final

_LAST_LINES = 20
_LAST_CHARACTERS = 2**14
"""Of the last lines at most so much is told: a line may be longer than anybody wants to see."""
_LOG_PATIENCE_S = 5.0
_LOG_PAUSE_S = 0.2


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
    conclude(session, run, shown=follower.of if log.has_printed else None)


def conclude(session: Session, run: Json, *, shown: LogOf | None) -> None:
    """Say how the run ended, and leave with 0 only if it succeeded. `shown` is the log that was printed before."""
    succeeded = run["state"] == "SUCCEEDED"
    click.echo(end_line(session, run), err=True)
    end = run.get("end") or {}
    if not succeeded and end.get("advice"):
        click.echo(f"{session.say('hint')}: {end['advice']}", err=True)
    of = LogOf(task_group=end.get("task_group"), task=end.get("task"))
    if not succeeded and of != shown:
        _tell_last_lines(session, run, of)
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
        parts += [place] if (place := place_in(session, condition)) else []
    return "  ".join(parts)


def place_in(session: Session, condition: Json) -> str | None:
    """Its queue."""
    position = condition.get("position")
    return None if position is None else session.say("position", position=position)


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


def log_pages(session: Session, run_id: str, *, of: LogOf = DRIVER, attempt: int | None, offset: int) -> Iterator[Json]:
    """What there is of a log now, page by page."""
    while True:
        page = session.muster.runs.log(run_id, of=of, attempt=attempt, offset=offset, limit_bytes=PAGE_BYTES)
        yield page
        if page["complete"] or page["next_offset"] <= offset:
            return
        offset = page["next_offset"]


def tail_start(pages: Iterator[Json], count: int, offset: int) -> tuple[int, int]:
    """Where the last lines of what begins at `offset` do: at a page's offset, and so many characters into it.

    Places are kept, not text: a line may be longer than memory.
    """
    starts = deque([(offset, 0)], maxlen=count + 1)
    text, end = "", offset
    for page in pages:
        starts.extend((page["offset"], at.end()) for at in re.finditer("\n", page["data"]))
        text, end = page["data"] or text, page["next_offset"]
    if text and not text.endswith("\n"):  # a last line that ends with the log
        starts.append((end, 0))
    return starts[0]


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
    return f"muster run logs -f {run_id}{task_options(follower.of)}{where}"


def task_options(of: LogOf) -> str:
    group = f" --task-group {of.task_group}" if of.task_group is not None else ""
    return f"{group} --task {of.task}" if of.task is not None else group


def _tell_last_lines(session: Session, run: Json, of: LogOf) -> None:
    if not run.get("attempts"):
        return
    text = ""
    for page in _whole_log(session, run["id"], of):
        text = (text + page["data"])[-_LAST_CHARACTERS:]
    shown = "\n".join(text.rstrip("\n").split("\n")[-_LAST_LINES:])
    if shown.strip():
        is_cut = len(text) == _LAST_CHARACTERS and text.startswith(shown)
        whose = {"task_group": of.task_group, "task": of.task}
        session.tell("last_lines" if of == DRIVER else "last_lines_of_task", **whose)
        click.echo("…" * is_cut + EscapeFilter(colours=False).feed(shown), err=True)


def _whole_log(session: Session, run_id: str, of: LogOf) -> Iterator[Json]:
    """A run ends a moment before the rest of its log is there."""
    deadline = time.monotonic() + _LOG_PATIENCE_S
    offset, complete = 0, False
    while not complete and time.monotonic() < deadline:
        for page in log_pages(session, run_id, of=of, attempt=None, offset=offset):
            yield page
            offset, complete = page["next_offset"], page["complete"]
        if not complete:
            time.sleep(_LOG_PAUSE_S)
