"""The processes of local Ray nodes: started detached, told apart by what nobody else carries, ended by id.

A node's guard is known by the `--temp-dir` on its command line, which is never given twice, and ends with all that is
below it. Should somebody kill the guard: what is left mostly carries the cluster's token path in its environment.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable

NICE = 5
"""By how much nodes give way to the service, and to whoever works on this machine: jobs may take every core."""

_REAP_TIMEOUT_S = 1.0
_TAIL_BYTES = 8192
_TAIL_LINES = 20
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Of this service process, whichever backend object started them: only the parent reaps and learns an exit code."""


def spawn(argv: Sequence[str], environment: Mapping[str, str], folder: str) -> int:
    """Run it in a session of its own, with `folder` as working directory and output in `<folder>.log`."""
    with Path(f"{folder}.log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 - argv is ours, values are passed as they are, never through a shell
            argv,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    os.setpriority(os.PRIO_PGRP, child.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    _children[child.pid] = child
    return child.pid


def is_node(pid: int, folder: str) -> bool:
    """Is `pid` the live guard of this folder's node? A zombie has no command line, another process not this one."""
    try:
        words = set(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
    return {"--block", f"--temp-dir={folder}"} <= words if words else _is_being_born(pid)


def has_parts(guard: int, names: frozenset[str]) -> bool:
    """Whether the `ray start` below this guard has these children.

    By the kernel's own lists: a scan of all processes at every look would cost an idle service its calm.
    """
    try:
        below = _children_of(guard)
    except OSError:
        return True  # a kernel without these lists, or gone since the last question: the next look will tell
    # The node is the guard's eldest; others are orphans it took in. Of a node without a guard it is `guard` itself.
    return any(names <= _names_below(parent) for parent in (*below, str(guard)))


def find_node(folder: str) -> int | None:
    return next((pid for pid in psutil.pids() if is_node(pid, folder) and _leads_session(pid)), None)


def exit_code(pid: int) -> int | None:
    """Of a node that is no more; None for one that a former service process started."""
    child = _children.get(pid)
    if child is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        return child.wait(_REAP_TIMEOUT_S)  # its command line goes a moment before its exit code comes
    return None


def signal_node(pid: int, folder: str, signal: int) -> None:
    if is_node(pid, folder):
        os.kill(pid, signal)


def kill_all_of(token_path: str) -> int:
    """SIGKILL whatever still carries this token path; answers how many there were."""
    found = list(_carrying(token_path))
    for process in found:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return len(found)


def forget(pid: int | None) -> None:
    if pid is not None and exit_code(pid) is not None:
        del _children[pid]


def last_lines(folder: str) -> list[str]:
    try:
        with Path(f"{folder}.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return _COLOUR.sub("", text).splitlines()[-_TAIL_LINES:]


def _is_being_born(pid: int) -> bool:
    """The kernel lets us go on a moment before a new process has its command line: a long one on a busy machine."""
    child = _children.get(pid)
    return child is not None and child.poll() is None


def _children_of(pid: int | str) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _names_below(pid: str) -> set[str]:
    with suppress(OSError):
        return {_name(child) for child in _children_of(pid)}
    return set()


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip()
    except OSError:
        return ""


def _leads_session(pid: int) -> bool:
    """Not a fork of it that has yet to become something else."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def _carrying(token_path: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN_PATH) == token_path:
                yield process
        except psutil.Error:
            continue  # gone meanwhile, or another user's
