"""The guard: a process outside Ray's tree that starts a task and ends all of it, whatever is killed (design.md §3.6).

Killing a process group misses whoever left it. The guard is a subreaper: every descendant that loses its parent
becomes its child, so "no child is left" means that nobody is left. It ends the task when its parent's pipe closes.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from .clock import now_s
from .events import EventLog
from .processes import adopt_orphans, die_with_parent, freeze, send, set_name, signal_pipe
from .spec import EXIT_LEASE_LOST, EXIT_MAX_RUNTIME, EXIT_TASK_LOST

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOP = b"stop"
_KILL_AGAIN_S = 0.1
_LONGEST_SLEEP_S = 3600.0  # poll() takes at most 24 days
_LONGEST_SLEEP_UNDER_LEASE_S = 1.0  # poll()'s own clock stands still while the machine sleeps
_LONGEST_GRACE_AFTER_LEASE_S = 60.0
"""Muster starts the next attempt 90 s after the lease's end."""
_NEVER = float("inf")
_EXIT_CODES = {"MAX_RUNTIME": EXIT_MAX_RUNTIME, "LEASE_EXPIRED": EXIT_LEASE_LOST, "NODE_ENDED": EXIT_TASK_LOST}
_NOT_STARTED = 127


class Task(NamedTuple):
    bootstrap: str
    environment: dict[str, str]
    stop_grace_s: float
    max_runtime_s: float | None
    log: EventLog
    lease_until: float | None = None
    """By this machine's clock; None: it has no lease. The parent tells of renewals."""


class Ended(NamedTuple):
    """How bash ended, and why the task did: EXITED, STOPPED, MAX_RUNTIME, LEASE_EXPIRED, PARENT_LOST or NODE_ENDED.

    NODE_ENDED: the guard was sent a signal. Its parent asks by its pipe, and Ray does not know it: who signals it ends
    whatever is on this node.
    """

    task_code: int
    signal: int | None
    reason: str

    @property
    def exit_code(self) -> int:
        """Of a runner whose only task this is."""
        return _EXIT_CODES.get(self.reason, self.task_code)


class Guard:
    """The parent's end: ask for a stop, wait for the end. Our death, however sudden, stops the task."""

    def __init__(self, control_fd: int, report_fd: int) -> None:
        self._control_fd = control_fd
        self._report_fd = report_fd
        self._report = b""

    @property
    def session(self) -> int | None:
        """The task's session, once it was started."""
        started, line_end, _ = self._report.partition(b"\n")
        return int(started) if line_end else None

    def stop(self) -> None:
        self._tell(_STOP)

    def hold(self, until: float) -> None:
        """The lease lasts until then by this machine's clock; in the past: it is over."""
        self._tell(b"%f" % until)

    def wait(self, signals_fd: int | None = None) -> Ended | None:
        """The end when no process is left; None when the guard itself was lost. A signal asks for a stop."""
        poller = select.poll()
        if signals_fd is not None:
            poller.register(signals_fd, select.POLLIN)
        poller.register(self._report_fd, select.POLLIN)
        while self._report.count(b"\n") < 2:
            ready = [fd for fd, _ in poller.poll()]
            if signals_fd is not None and signals_fd in ready:
                os.read(signals_fd, select.PIPE_BUF)
                self.stop()
            if self._report_fd in ready:
                news = os.read(self._report_fd, select.PIPE_BUF)
                if not news:
                    return None
                self._report += news
        return Ended(*json.loads(self._report.split(b"\n")[1]))

    def _tell(self, word: bytes) -> None:
        try:
            os.write(self._control_fd, word + b"\n")
        except BrokenPipeError:  # it is over already
            return


def start_guard(task: Task) -> Guard:
    """Fork twice, so that the guard is nobody's child: Ray's stop and kill do not find it."""
    parent_fd, control_fd = os.pipe()
    report_fd, result_fd = os.pipe()
    between = os.fork()
    if between == 0:
        leave(task, parent_fd, result_fd)
    os.waitpid(between, 0)
    os.close(parent_fd)
    os.close(result_fd)
    return Guard(control_fd, report_fd)


def leave(task: Task, parent_fd: int, result_fd: int) -> NoReturn:
    """Fork the guard off and be gone."""
    try:
        os.setsid()
        if os.fork() == 0:
            _close_all_but({0, 1, 2, parent_fd, result_fd, task.log.fd})
            _be_guard(task, parent_fd, result_fd)
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into its parent's code
        task.log.write("guard_error", reason=repr(error))
    finally:
        os._exit(0)


def _be_guard(task: Task, parent_fd: int, result_fd: int) -> None:
    set_name(b"muster-guard")
    adopt_orphans()
    signals_fd = signal_pipe(signal.SIGCHLD, *_STOP_SIGNALS)
    if task.lease_until is not None and now_s() >= task.lease_until:  # we slept
        _report(result_fd, 0, Ended(0, None, "LEASE_EXPIRED"))
        return
    bash = _start_bash(task)
    _let_go()
    _report(result_fd, bash)
    task.log.write("task_started", pid=bash)
    _report(result_fd, _Watch(task, bash, parent_fd, signals_fd).until_nobody_is_left())


def _report(result_fd: int, *lines: object) -> None:
    """The pid of bash, then the end."""
    try:
        os.write(result_fd, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    except BrokenPipeError:  # the parent is gone; events.jsonl has the code
        return


def _start_bash(task: Task) -> int:
    guard = os.getpid()
    # Held back until bash is bash, so that a stop in between is not swallowed by the handlers it inherits.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    bash = os.fork()
    if bash == 0:
        _become_bash(task, guard, mask)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return bash


def _become_bash(task: Task, guard: int, mask: Iterable[int]) -> NoReturn:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != guard:
            os._exit(_NOT_STARTED)
        for number in (*_STOP_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for shell in ("bash", "sh"):
            try:
                os.execvpe(shell, [shell, task.bootstrap], task.environment)  # noqa: S606 - the user's own command
            except FileNotFoundError:
                continue
        os.write(2, b"muster: this node has neither bash nor sh\n")
    finally:
        os._exit(_NOT_STARTED)


def _close_all_but(kept: set[int]) -> None:
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:  # the listing's own
                continue


def _let_go() -> None:
    """Hold neither the job's log nor its folder."""
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


class _Watch:
    """TERM to everybody at the first reason to end, KILL after the grace, until no child is left."""

    def __init__(self, task: Task, bash: int, parent_fd: int, signals_fd: int) -> None:
        self._task = task
        self._bash = bash
        self._parent_fd = parent_fd
        self._signals_fd = signals_fd
        self._poller = select.poll()
        self._poller.register(parent_fd, select.POLLIN)
        self._poller.register(signals_fd, select.POLLIN)
        self._deadlines: dict[str, float] = {}  # by the reason they give
        if task.max_runtime_s is not None:
            self._deadlines["MAX_RUNTIME"] = now_s() + task.max_runtime_s
        if task.lease_until is not None:
            self._deadlines["LEASE_EXPIRED"] = task.lease_until
        self._unread = b""
        self._code: int | None = None
        self._killer: int | None = None
        self._reason = ""
        self._grace_until = _NEVER
        self._killed_at = -_NEVER

    def until_nobody_is_left(self) -> Ended:
        asked = ""
        while self._reap():
            now = now_s()
            if not self._reason and (reason := self._why(asked, now)):
                self._begin_to_end(reason, now)
            elif self._reason and now >= self._kill_at():
                self._killed_at = now
                send(signal.SIGKILL, freeze(os.getpid()))
            asked = self._wait(now) or asked
        asked = self._heard(0) or asked
        if asked == "NODE_ENDED" and self._reason == "STOPPED":  # its parent was signalled with it, and came first
            self._reason = asked
        ended = Ended(self._code or 0, self._killer, self._reason or self._why(asked, now_s()))
        self._task.log.write("verdict", exit_code=ended.exit_code, reason=ended.reason)
        return ended

    def _begin_to_end(self, reason: str, now: float) -> None:
        self._reason = reason
        self._grace_until = now + self._task.stop_grace_s
        slept = now >= self._kill_at()  # another attempt may be under way: nobody gets to act once more
        if slept and self._code is None:  # most of it at once, before the rest is looked for
            send(signal.SIGKILL, {-self._bash})
        self._task.log.write("stopping", reason=reason)
        everybody = freeze(os.getpid())
        if not slept:
            send(signal.SIGTERM, everybody)
            send(signal.SIGCONT, everybody)

    def _kill_at(self) -> float:
        """After the grace; if the lease runs out meanwhile, soon enough for whoever relies on that."""
        grace_s = min(self._task.stop_grace_s, _LONGEST_GRACE_AFTER_LEASE_S)
        due = min(self._grace_until, self._deadlines.get("LEASE_EXPIRED", _NEVER) + grace_s)
        return max(due, self._killed_at + _KILL_AGAIN_S)

    def _reap(self) -> bool:
        """Collect the dead; False when no child is left, and so no descendant."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._bash:
                self._note_exit(status)

    def _note_exit(self, status: int) -> None:
        self._killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self._code = 128 + self._killer if self._killer else os.WEXITSTATUS(status)
        self._task.log.write("task_ended", pid=self._bash, exit_code=self._code, signal=self._killer)

    def _why(self, asked: str, now: float) -> str:
        """The reason to end, if there is one; of what is seen at once, what came first.

        Who ends a whole node signals bash too. Any other wish reaches it through us alone: then it ended by itself.
        """
        if self._code is not None and asked != "NODE_ENDED":
            return "EXITED"
        return asked or self._expired(now)

    def _expired(self, now: float) -> str:
        return next((reason for reason, at in self._deadlines.items() if now >= at), "")

    def _wait(self, now: float) -> str:
        """Sleep until something happens or is due; why the parent or a signal wants an end, if so."""
        due = self._kill_at() if self._reason else min(self._deadlines.values(), default=_NEVER)
        longest_s = _LONGEST_SLEEP_UNDER_LEASE_S if "LEASE_EXPIRED" in self._deadlines else _LONGEST_SLEEP_S
        return self._heard(min(max(0.0, due - now), longest_s) * 1000 + 1)

    def _heard(self, within_ms: float) -> str:
        asked = ""
        for fd, _ in self._poller.poll(within_ms):
            news = os.read(fd, select.PIPE_BUF)
            if fd == self._signals_fd:
                asked = "NODE_ENDED" if set(news) & set(_STOP_SIGNALS) else asked
            elif news:
                heard = self._hear(news)
                asked = asked or heard
            else:
                self._poller.unregister(fd)
                asked = asked or "PARENT_LOST"
        return asked

    def _hear(self, news: bytes) -> str:
        """The parent's words, a line each: to stop, or until when the lease lasts."""
        *words, self._unread = (self._unread + news).split(b"\n")
        for word in words:
            if word != _STOP:
                self._deadlines["LEASE_EXPIRED"] = float(word)
        return "STOPPED" if _STOP in words else ""
