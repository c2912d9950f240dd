"""A folder as a ZIP whose bytes depend on nothing but names, contents and the executable bit.

The same folder is the same package, so that submitting it twice stores it once.
"""

import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NEVER = frozenset({".git", ".venv", "__pycache__"})
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    count: int
    left_out: tuple[str, ...]


def pack_folder(folder: Path, target: Path) -> Packed:
    """Links to files inside the folder are followed; other links, and what is no regular file, stay out.

    A package can be read by everybody with a token.
    """
    left_out: list[str] = []
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _files(folder, left_out):
            _add(archive, file, file.relative_to(folder).as_posix())
            count += 1
    return Packed(count=count, left_out=tuple(_relative(folder, left_out)))


def _files(folder: Path, left_out: list[str]) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        refused = [name for name in folders if name in _NEVER or Path(parent, name).is_symlink()]
        folders[:] = sorted(set(folders) - set(refused))
        odd = [name for name in files if not _is_inside(Path(parent, name), folder)]
        left_out += [str(Path(parent, name)) for name in refused + odd]
        yield from (Path(parent, name) for name in sorted(set(files) - set(odd)))


def _is_inside(file: Path, folder: Path) -> bool:
    return file.is_file() and (not file.is_symlink() or file.resolve().is_relative_to(folder.resolve()))


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    mode = 0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.create_system = _UNIX
    entry.external_attr = (stat.S_IFREG | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.file_size = file.stat().st_size  # tells zipfile whether it needs the 64-bit form
    with file.open("rb") as source, archive.open(entry, "w") as out:
        shutil.copyfileobj(source, out, 2**20)


def _relative(folder: Path, names: list[str]) -> Iterator[str]:
    return (Path(name).relative_to(folder).as_posix() for name in sorted(names))
