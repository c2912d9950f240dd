"""Programs that may never come back, and the kernel's list of mounts: nothing here touches what may hang.

Also for the local backend, which must not delete a folder while something is mounted below it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

_ESCAPED = re.compile(rb"\\([0-7]{3})")
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "RAY_AUTH_TOKEN_PATH")
"""No keys and no proxies of whoever started the node. By the last one a local cluster's leftovers are known."""
_UNMOUNT_WITHIN_S = 10
_KILLED_WITHIN_S = 0.5
_MAX_TELLS = 8
_given_up: list[subprocess.Popen[bytes]] = []
"""Killed, and perhaps still there."""


class Done(NamedTuple):
    """`code` is None when its time was up."""

    code: int | None
    output: str

    def __str__(self) -> str:
        return "no answer in time" if self.code is None else f"exit code {self.code}: {self.output}"


def environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


def run(argv: Sequence[str], within_s: float, pass_fds: Sequence[int] = ()) -> Done:
    child = subprocess.Popen(  # noqa: S603 - our own lists, never a shell
        argv,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        _give_up(child)
        return Done(None, "")
    return Done(child.returncode, last_lines(output))


def last_lines(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").strip().splitlines()[-_MAX_TELLS:])


def mounts_below(folder: str) -> list[str]:
    """Mount points at or below the folder, those on top last."""
    parent, name = os.path.split(os.path.abspath(folder))
    real = os.path.join(os.path.realpath(parent), name)
    with open("/proc/self/mountinfo", "rb") as file:
        points = [os.fsdecode(_ESCAPED.sub(_unescaped, line.split()[4])) for line in file]
    return [point for point in points if point == real or point.startswith(f"{real}/")]


def unmount_below(folder: str) -> list[str]:
    """What stays mounted all the same. Busy or dead mounts are taken out of sight and end with their last user."""
    for lazily in (False, True):
        for point in reversed(mounts_below(folder)):
            unmount(point, lazily=lazily)
    return mounts_below(folder)


def unmount(point: str, *, lazily: bool) -> Done:
    if os.geteuid() == 0:
        flags = ["--lazy"] if lazily else []
        return run(["umount", "--no-canonicalize", *flags, point], _UNMOUNT_WITHIN_S)
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    if program is None:
        return Done(None, "")
    return run([program, "-u", *(["-z"] if lazily else []), point], _UNMOUNT_WITHIN_S)


def _give_up(child: subprocess.Popen[bytes]) -> None:
    """It is not waited for: the kernel may not let it go before the file system answers."""
    child.kill()
    try:
        child.communicate(timeout=_KILLED_WITHIN_S)
    except subprocess.TimeoutExpired:
        _given_up[:] = [child, *(one for one in _given_up if one.poll() is None)]


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])
