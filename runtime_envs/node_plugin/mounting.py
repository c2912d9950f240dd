"""An attempt's mounts on this node: all of them or none, and taken away without waiting for whoever hangs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from . import system
from .ask import credentials_of
from .commands import BUCKETS, SERVERS, bucket_command, client_says, passwd_file, passwd_line, server_command
from .terms import MOUNT_TIMEOUT, MOUNT_TIMEOUT_S, Credential, Mount, Origin, SetupError, node_root

_LOOK_AGAIN_S = 0.05
_SETTLED_AFTER_S = 0.3
"""A FUSE client that dislikes its bucket answers for a moment before it ends."""
_END_WITHIN_S = 10
_BUSY_LOOK_S = 0.1
_ASK = "import os, sys\ntry: os.lstat(sys.argv[1])\nexcept FileNotFoundError: pass"
_PACKAGES = {"s3fs": "s3fs", "mount.nfs": "nfs-common"}


def mounts_folder(root: str, attempt: str) -> str:
    return os.path.join(root, "mounts", attempt)


class Mounter:
    """Its calls block, each for a bounded time; those for one attempt are to come one after another."""

    def __init__(self) -> None:
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        """FUSE clients by mount point."""
        self._leaving: list[subprocess.Popen[bytes]] = []
        """Those whose mount was still in use: they end with the last user, when all that he wrote is stored."""
        self._timeout_s = float(os.environ.get(MOUNT_TIMEOUT, MOUNT_TIMEOUT_S))

    def mount_all(self, origin: Origin, mounts: list[Mount]) -> None:
        """Those that are there already stay. Raises SetupError."""
        folder = mounts_folder(node_root(), origin.attempt)
        missing = [mount for mount in mounts if not self._is_there(os.path.join(folder, mount.path))]
        credentials = credentials_of(origin) if any(mount.needs_credential for mount in missing) else {}
        try:
            for mount in missing:
                self._mount(mount, origin.attempt, credentials.get(mount.volume))
        except BaseException as error:
            if len(missing) == len(mounts):
                self.unmount_all(origin.attempt)
            else:  # others are in use
                self._take_back([os.path.join(folder, mount.path) for mount in missing])
            if isinstance(error, OSError):
                raise SetupError(f"{mount} cannot be mounted: {error}") from error
            raise

    def unmount_all(self, attempt: str) -> None:
        folder, own = mounts_folder(node_root(), attempt), _own_folder(attempt)
        for point in reversed(system.mounts_below(folder)):
            self._unmount(point)
        if not system.mounts_below(folder):
            _remove_empty(folder)
        shutil.rmtree(own, ignore_errors=True)  # nothing is ever mounted in there

    def _take_back(self, targets: list[str]) -> None:
        for target in targets:
            if target in system.mounts_below(target):
                self._unmount(target)
            _remove_one(target)

    def _is_there(self, target: str) -> bool:
        client = self._clients.get(target)
        if client is not None and client.poll() is not None:
            self._unmount(target)  # it broke down: a new one takes its place
        return target in system.mounts_below(target) or os.path.islink(target)

    def _mount(self, mount: Mount, attempt: str, credential: Credential | None) -> None:
        target = os.path.join(mounts_folder(node_root(), attempt), mount.path)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        if mount.type == "local":
            _bind(mount, target, self._timeout_s)
        elif mount.type in BUCKETS:
            self._start_client(mount, target, os.path.join(_own_folder(attempt), mount.path), credential)
        elif mount.type in SERVERS:
            _mount_share(mount, target, self._timeout_s)
        else:
            raise SetupError(f"{mount} cannot be mounted on nodes that already run")

    def _start_client(self, mount: Mount, target: str, own: str, credential: Credential | None) -> None:
        if credential is None or credential.get("token"):
            raise SetupError(f"{mount} has no lasting credential, and a mount needs one")
        program = (shutil.which("cosfs") if mount.type == "cos" else None) or _needed("s3fs", mount)
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise SetupError(f"{mount}: this node's user may not use /dev/fuse, so no bucket can be mounted here")
        for folder in (target, own):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        command = bucket_command(program, mount, target, own, (os.geteuid(), os.getegid()))
        with _written(passwd_file(own), passwd_line(mount, credential)), open(f"{own}/log", "wb") as log:
            client = subprocess.Popen(  # noqa: S603 - our own list, no shell
                command, env=system.environment(), cwd=own, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            self._clients[target] = client
            try:
                _wait_until_ready(mount, client, target, self._timeout_s)
            except BaseException as error:
                client.kill()
                self._unmount(target)
                if not isinstance(error, SetupError):
                    raise
                with open(f"{own}/log", "rb") as said:
                    raise SetupError(f"{error.text}: {client_says(said.read())}".rstrip(": ")) from error

    def _unmount(self, point: str) -> None:
        self._leaving = [client for client in self._leaving if client.poll() is None]
        is_busy = system.unmount(point, lazily=False).code != 0
        if is_busy:
            system.unmount(point, lazily=True)
        client = self._clients.pop(point, None)
        if client is None:
            return
        try:
            client.wait(_BUSY_LOOK_S if is_busy else _END_WITHIN_S)
        except subprocess.TimeoutExpired:
            if not is_busy:
                client.kill()
            self._leaving.append(client)


def _bind(mount: Mount, target: str, timeout_s: float) -> None:
    """By descriptor: nobody can put a symbolic link in the place of a folder that was looked at."""
    is_root = os.geteuid() == 0
    if mount.read_only and not is_root:
        raise SetupError(f"{mount}: only root can mount a folder read-only, and this node runs as another user")
    folder = _open_inside(mount)
    try:
        source = f"/proc/self/fd/{folder}"
        if not is_root:
            os.symlink(os.readlink(source), target)
            return
        os.makedirs(target, mode=0o700, exist_ok=True)
        bind = ["mount", "--no-canonicalize", "--bind", source, target]
        _need(mount, system.run(bind, timeout_s, pass_fds=[folder]))
    finally:
        os.close(folder)
    if mount.read_only:
        _need(mount, system.run(["mount", "--no-canonicalize", "-o", "remount,bind,ro", target], timeout_s))


def _open_inside(mount: Mount) -> int:
    """A descriptor of the folder at `sub_path` of a local volume, made where it is missing."""
    root, steps = mount.source["path"], mount.sub_path.split("/") if mount.sub_path else []
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        for name in steps:
            folder = _step(folder, name, make=not mount.read_only)
    except OSError as error:
        raise SetupError(f"{mount}: no folder to mount at {'/'.join([root, *steps])}: {error.strerror}") from error
    return folder


def _step(folder: int, name: str, *, make: bool) -> int:
    """Through no link. The descriptor of where it came from is closed."""
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def _mount_share(mount: Mount, target: str, timeout_s: float) -> None:
    if os.geteuid() != 0:
        raise SetupError(f"{mount}: only root can mount it, and this node runs as another user")
    _needed("mount.nfs", mount)
    os.makedirs(target, mode=0o700, exist_ok=True)
    _need(mount, system.run(server_command(mount, target), timeout_s))


def _wait_until_ready(mount: Mount, client: subprocess.Popen[bytes], target: str, timeout_s: float) -> None:
    """It is when an answer came from the bucket itself."""
    deadline = time.monotonic() + timeout_s
    while client.poll() is None and target not in system.mounts_below(target):
        if time.monotonic() >= deadline:
            raise SetupError(f"{mount} does not answer within {timeout_s:g} s")
        time.sleep(_LOOK_AGAIN_S)
    if client.poll() is None:
        ask = [sys.executable, "-I", "-S", "-c", _ASK, f"{target}/.muster-{os.getpid()}"]
        answer = system.run(ask, max(1.0, deadline - time.monotonic()))
        if answer.code is None:
            raise SetupError(f"{mount} does not answer within {timeout_s:g} s")
        with suppress(subprocess.TimeoutExpired):
            client.wait(_SETTLED_AFTER_S)
        if answer.code != 0 and client.poll() is None:
            raise SetupError(f"{mount} cannot be read: {answer.output}")
    if client.poll() is not None:
        raise SetupError(f"{mount} cannot be mounted")


def _need(mount: Mount, done: system.Done) -> None:
    if done.code != 0:
        raise SetupError(f"{mount} cannot be mounted: {done}")


def _needed(program: str, mount: Mount) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if path is None:
        raise SetupError(f"{mount}: {program} is missing on this node; install the package {_PACKAGES[program]} there")
    return path


def _own_folder(attempt: str) -> str:
    """Beside the mounts, for what clients need: no job finds it by a path it was given."""
    return os.path.join(node_root(), "clients", attempt)


@contextmanager
def _written(path: str, text: str) -> Iterator[None]:
    """There while the client starts, which reads it once."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        yield
    finally:
        os.unlink(path)


def _remove_empty(folder: str) -> None:
    """Mount points, and links in their place. Whatever else is there was not ours to make, and stays."""
    for parent, names, files in os.walk(folder, topdown=False):
        for name in (*names, *files):
            _remove_one(os.path.join(parent, name))
    _remove_one(folder)


def _remove_one(path: str) -> None:
    with suppress(OSError):
        (os.unlink if os.path.islink(path) else os.rmdir)(path)
