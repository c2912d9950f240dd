"""A large package on this node: fetched as a stream, checked, unpacked once for all runs that need the same bytes."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator

from ray._private.runtime_env.packaging import unzip_package

from . import system
from .ask import asked
from .terms import Origin, PackageTerms, SetupError, node_root


def package_folder(sha256: str) -> str:
    return os.path.join(node_root(), "packages", sha256)


def fetch(origin: Origin, package: PackageTerms, logger: logging.Logger) -> int:
    """Its size when unpacked, by the same program as Ray's own packages: the layout is the same."""
    folder = package_folder(package.sha256)
    try:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=os.path.dirname(folder)) as draft:
            archive, unpacked = os.path.join(draft, "package.zip"), os.path.join(draft, "unpacked")
            _download(origin, package, archive)
            with zipfile.ZipFile(archive) as listed:
                size_bytes = sum(entry.file_size for entry in listed.infolist())
            unzip_package(archive, unpacked, remove_top_level_directory=False, unlink_zip=True, logger=logger)
            remove(package.sha256)  # what a former try may have left
            os.rename(unpacked, folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise SetupError(f"the package cannot be stored on this node: {error}") from error
    return size_bytes


def is_held(sha256: str) -> bool:
    """A run has mounted something in it: what lies below that mount is not ours to delete."""
    return bool(system.mounts_below(package_folder(sha256)))


def remove(sha256: str) -> bool:
    """Whether nothing is in its place any more. Out of the way at once, unless it is held."""
    folder = package_folder(sha256)
    if is_held(sha256):
        return False
    if os.path.isdir(folder):
        gone = tempfile.mkdtemp(prefix="old-", dir=os.path.dirname(folder))
        os.rename(folder, os.path.join(gone, "package"))
        shutil.rmtree(gone, ignore_errors=True)
    return True


def _download(origin: Origin, package: PackageTerms, path: str) -> None:
    def store(blocks: Iterator[bytes]) -> tuple[str, int]:
        digest, size_bytes = hashlib.sha256(), 0
        with open(path, "wb") as file:
            for block in blocks:
                size_bytes += len(block)
                if size_bytes > package.size_bytes:
                    break
                file.write(block)
                digest.update(block)
        return digest.hexdigest(), size_bytes

    where = f"/runner/v1/packages/{package.sha256}.zip?attempt={origin.attempt}"
    sha256, size_bytes = asked(origin, where, store)
    if (sha256, size_bytes) != (package.sha256, package.size_bytes):
        raise SetupError(f"the package came with other bytes than it should ({size_bytes} of {package.size_bytes})")
