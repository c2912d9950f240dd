"""Stands above one local node, and ends with all that came of it: `local_guard.py <grace_s> <command…>`.

Whatever a task detaches from Ray, its session and its environment, falls to the next subreaper above: to this process.
It outlives the service, as its node does. TERM to it, or the end of its command, ends every descendant. It is run by
its path in a Python without site-packages, so it stands on the standard library alone and imports nothing of ours.
"""

import ctypes  # neither pathlib nor typing: with them each node's guard would take a seventh more memory
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_AWAITED = (*_ENDINGS, signal.SIGCHLD)
_AGAIN_S = 0.1
_LOOK_AGAIN_S = 0.001
_STILL_WITHIN_S = 0.5
"""Who waits for a disk takes longer to stop, and does not fork meanwhile."""
_LONGEST_SLEEP_S = 3600.0
_NOT_STARTED = 127


def main(grace_s: float, command: list[str]) -> int:
    """The exit code of the command, 128 + N if signal N ended it, once nobody is left."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as it may be inherited, children would go unseen
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    _prctl(_PR_SET_NAME, b"muster-node")
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    node = os.fork()
    if node == 0:
        _become(command, guard)
    return _Watch(node, grace_s).until_nobody_is_left()


def _become(command: list[str], guard: int) -> None:
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # no node without its guard
        if os.getppid() != guard:
            os._exit(_NOT_STARTED)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        os.execvp(command[0], command)  # noqa: S606 - the backend's own list, no shell
    except OSError as error:
        print(f"muster: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201 - the node's log
    finally:
        os._exit(_NOT_STARTED)


class _Watch:
    """TERM to everybody at the first reason to end, KILL after the grace, until no child is left."""

    def __init__(self, node: int, grace_s: float) -> None:
        self._node = node
        self._grace_s = grace_s
        self._code: int | None = None
        self._kill_at: float | None = None

    def until_nobody_is_left(self) -> int:
        is_asked = False
        while self._reap():
            now = time.monotonic()
            if self._kill_at is None:
                if is_asked or self._code is not None:
                    self._kill_at = now + self._grace_s
                    everybody = _freeze()
                    _send(signal.SIGTERM, everybody)
                    _send(signal.SIGCONT, everybody)
            elif now >= self._kill_at:
                self._kill_at = now + _AGAIN_S
                _send(signal.SIGKILL, _freeze())
            is_asked = self._wait(now) or is_asked
        return self._code or 0

    def _reap(self) -> bool:
        """Collect the dead; False when no child is left, and so no descendant: orphans become children."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._node:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    def _wait(self, now: float) -> bool:
        """Until something happens or is due; whether somebody asked for the end."""
        sleep_s = _LONGEST_SLEEP_S if self._kill_at is None else max(0.0, self._kill_at - now)
        come = signal.sigtimedwait(_AWAITED, sleep_s)
        return come is not None and come.si_signo in _ENDINGS


def _freeze() -> set[int]:
    """Stop all descendants, so that none can fork unseen; all of them."""
    frozen: set[int] = set()
    while new := _descendants() - frozen:
        _send(signal.SIGSTOP, new)
        _await_still(new)
        frozen |= new
    return frozen


def _await_still(pids: set[int]) -> None:
    """A stop takes effect when a fork under way is done: only then its child is there to be found."""
    deadline = time.monotonic() + _STILL_WITHIN_S
    while any(_stat(pid)[0] not in b"TtZX" for pid in pids) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_S)


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):  # noqa: PTH208 - see the imports
        children.setdefault(_parent(pid), []).append(pid)
    found = list(children.get(os.getpid(), ()))
    for pid in found:  # grows while we walk it
        found += children.get(pid, ())
    return set(found)


def _parent(pid: int) -> int:
    """0 when it is gone. A zombie counts: it may be but the first thread of a process that goes on."""
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[bytes]:
    """State, parent and what follows; as of a dead orphan when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - see the imports
            return file.read().rpartition(b") ")[2].split()
    except OSError:
        return [b"X", b"0"]


def _send(number: int, pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _prctl(option: int, value: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
