"""Linux processes seen through /proc: who descends from whom, who carries our mark, and how to end them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple

MARK = "MUSTER_GUARD"
"""The variable by which those are known who descend from a guard."""
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_AGAIN_S = 0.05
_LOOK_AGAIN_S = 0.001
_STILL_WITHIN_S = 0.5
"""Who waits for a disk takes longer to stop, and does not fork meanwhile."""
_THREADS = 16
"""Where a process's number of threads stands behind its state (proc_pid_stat(5))."""
_libc = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    pid: int
    parent: int
    session: int


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own: none can detach itself from us."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def set_name(name: bytes) -> None:
    _prctl(_PR_SET_NAME, name)


def signal_pipe(*signals: int) -> int:
    """A descriptor that turns readable, with the signal's number as a byte, when one of the signals comes."""
    read_fd, write_fd = os.pipe()
    for fd in (read_fd, write_fd):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return read_fd


def command_line(pid: int) -> list[bytes]:
    return _read(pid, "cmdline").split(b"\0")


def process(pid: int) -> Process | None:
    """None when it is gone, or a zombie, which waits for its parent; one that lost its first thread alone goes on."""
    state, *numbers = _read(pid, "stat").rpartition(b") ")[2].split() or [b"X"]
    if state == b"X" or (state == b"Z" and int(numbers[_THREADS]) <= 1):
        return None
    parent, _, session = map(int, numbers[:3])
    return Process(pid, parent, session)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for one in _processes():
        children.setdefault(one.parent, []).append(one.pid)
    found = list(children.get(root, []))
    for pid in found:  # grows while we walk it
        found += children.get(pid, [])
    return found


def freeze(root: int) -> set[int]:
    """Stop all descendants of `root`, so that none can fork unseen; all of them."""
    frozen: set[int] = set()
    while new := set(descendants(root)) - frozen:
        send(signal.SIGSTOP, new)
        _await_still(new)
        frozen |= new
    return frozen


def send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def sweep(mark: str, session: int | None) -> None:
    """Kill, until none is left, whoever carries `mark` as `MARK` or belongs to the session."""
    while found := [one.pid for one in _processes() if one.session == session or _carries(one.pid, mark)]:
        send(signal.SIGKILL, {*found, *(pid for one in found for pid in descendants(one))})
        time.sleep(_SWEEP_AGAIN_S)


def _await_still(pids: Iterable[int]) -> None:
    """A stop takes effect when a fork under way is done: only then its child is there to be found."""
    deadline = time.monotonic() + _STILL_WITHIN_S
    while any(_moves(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_S)


def _moves(pid: int) -> bool:
    return _read(pid, "stat").rpartition(b") ")[2][:1] not in (b"T", b"t", b"Z", b"X", b"")


def _prctl(option: int, value: object) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def _processes() -> list[Process]:
    seen = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [one for one in seen if one]


def _carries(pid: int, mark: str) -> bool:
    return f"{MARK}={mark}".encode() in _read(pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
