"""Blobs as files below one directory."""

import os
import stat
import threading
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from kernel.errors import NotFound
from runtime_envs.packages.base import Blob, check_key
from runtime_envs.packages.spool import disk_full_is_unavailable, in_thread, remove_orphans, spooled

_READ_BYTES = 1024 * 1024


class LocalBlobStore:
    """One process writes to `root`; a leading dot, which no key has, keeps unfinished files apart."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.spool_dir = root / ".spool"
        self._folders = threading.Lock()
        """Held so that no folder is cleared away as empty while a file is about to move into it."""

    async def prepare(self) -> None:
        await in_thread(self._prepare)

    async def put(self, key: str, chunks: AsyncIterable[bytes]) -> None:
        path = self._path(key)
        async with spooled(self.spool_dir, chunks) as file:
            await in_thread(self._publish, file.path, path)

    async def put_file(self, key: str, path: Path) -> None:
        await in_thread(self._publish, path, self._path(key))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        try:
            file = self._path(key).open("rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound("BLOB_NOT_FOUND", key=key) from error
        with file:
            size_bytes = os.fstat(file.fileno()).st_size
            end = size_bytes if end is None else min(end, size_bytes)
            for at in range(start, end, _READ_BYTES):
                yield await in_thread(os.pread, file.fileno(), min(_READ_BYTES, end - at), at)

    async def size_bytes(self, key: str) -> int | None:
        path = self._path(key)
        return await in_thread(lambda: path.stat().st_size if path.is_file() else None)

    async def delete(self, key: str) -> None:
        await in_thread(self._delete, self._path(key))

    async def find(self, prefix: str) -> AsyncIterator[Blob]:
        folder = prefix.rpartition("/")[0]
        waiting = [self._path(folder) if folder else self._root]
        while waiting:
            blobs, folders = await in_thread(self._look_into, waiting.pop())
            waiting += folders
            for blob in blobs:
                if blob.key.startswith(prefix):
                    yield blob

    def _prepare(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.spool_dir.mkdir(exist_ok=True)
        remove_orphans(self.spool_dir)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _publish(self, source: Path, target: Path) -> None:
        with disk_full_is_unavailable():
            _sync(source)
            with self._folders:
                self._make_folder(target.parent)
                source.replace(target)
            with suppress(FileNotFoundError):  # deleted again already
                _sync(target.parent)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)

    def _delete(self, path: Path) -> None:
        with self._folders:
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
            with suppress(OSError):  # a folder that is not empty stays, and ends the climb
                while (path := path.parent) != self._root:
                    path.rmdir()

    def _look_into(self, folder: Path) -> tuple[list[Blob], list[Path]]:
        blobs, folders = [], []
        for path in _children(folder):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # deleted since
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
                continue
            modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
            key = path.relative_to(self._root).as_posix()
            blobs.append(Blob(key=key, size_bytes=status.st_size, modified_at=modified_at))
        return blobs, folders


def _children(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
