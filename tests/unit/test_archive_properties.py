"""Whatever is accepted reads the same with Python's `zipfile`, which Ray unpacks with; and memory stays small."""

import io
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernel.errors import InvalidInput
from runtime_envs.archive import inspect_archive
from runtime_envs.archive_data import ArchiveLimits
from tests.builders.archive_bytes import Raw, build

MIB = 1024 * 1024
PARTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="/\\:"), min_size=1, max_size=40
)
PATHS = st.lists(
    PARTS.filter(lambda part: part not in (".", "..") and len(part.encode()) < 250), min_size=1, max_size=4
)


def do_not_collide(paths: list[list[str]]) -> bool:
    folded = [tuple(part.casefold() for part in path) for path in paths]
    spellings: dict[tuple[str, ...], set[tuple[str, ...]]] = {
        key[:n]: set() for key in folded for n in range(len(key) + 1)
    }
    for key, path in zip(folded, paths, strict=True):
        for n in range(len(key) + 1):
            spellings[key[:n]].add(tuple(path[:n]))
    folders = {key[:n] for key in folded for n in range(len(key))}
    return (
        len(set(folded)) == len(folded) and folders.isdisjoint(folded) and all(len(s) == 1 for s in spellings.values())
    )


@given(
    st.lists(PATHS, min_size=1, max_size=8).filter(do_not_collide),
    st.lists(st.binary(max_size=200), min_size=8, max_size=8),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    st.booleans(),
)
def test_a_well_formed_zip_of_safe_names_passes(
    paths: list[list[str]], contents: list[bytes], method: int, streamed: bool
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for path, content in zip(paths, contents, strict=False):
            with archive.open("/".join(path), "w", force_zip64=streamed) as file:
                file.write(content)
    report = inspect_archive(out, ArchiveLimits())
    with zipfile.ZipFile(out) as archive:
        assert [entry.name for entry in report.entries] == archive.namelist()
        assert report.unpacked_bytes == sum(len(archive.read(name)) for name in archive.namelist())


VALID = build(
    Raw(name=b"src/", data=b"", method=0, mode=0o40755),
    Raw(name=b"src/main.py", data=b"print('hello')\n" * 20),
    Raw(name="配置.yaml".encode(), flags=0x800, data=b"a: 1\n", method=0),
    comment=b"by hand",
)


@settings(max_examples=1000)
@given(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.integers(0, len(VALID)), st.binary(max_size=3))
@example(at=len(VALID) - 1, byte=0, cut_at=len(VALID), inserted=b"")
def test_a_damaged_zip_is_refused_or_reads_the_same(at: int, byte: int, cut_at: int, inserted: bytes) -> None:
    damaged = VALID[:at] + bytes([byte]) + VALID[at + 1 :]
    data = damaged[:cut_at] + inserted + damaged[cut_at:]
    try:
        report = inspect_archive(io.BytesIO(data), ArchiveLimits())
    except InvalidInput:
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        told = {entry.name.encode(): entry.size_bytes for entry in report.entries}
        read = {_raw_name(info): len(archive.read(info)) for info in infos}
    assert read == told


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    return info.filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")


PEAK = """
import resource, sys
from kernel.errors import InvalidInput
from runtime_envs.archive import inspect_archive
from runtime_envs.archive_data import ArchiveLimits

before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open(sys.argv[1], "rb") as file:
    try:
        inspect_archive(file, ArchiveLimits(max_unpacked_bytes=2**28))
        code = "accepted"
    except InvalidInput as error:
        code = error.code
print(code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) * 1024)
"""


def bomb_of_zeros() -> bytes:
    """100 MiB that would unpack to about 100 GiB."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflater.compress(bytes(8 * MIB)) + deflater.flush(zlib.Z_FULL_FLUSH)
    payload = block * (100 * MIB // len(block)) + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return build(Raw(name=b"zeros", payload=payload, size=2**32 - 2))


def long_names() -> bytes:
    """As many entries with as long names as are allowed."""
    return build(
        *(Raw(name=(b"%05d" % n + b"/" + b"n" * 250) + (b"/" + b"m" * 250) * 3, data=b"") for n in range(10_000))
    )


@pytest.mark.parametrize(
    ("make", "code"), [(bomb_of_zeros, "PACKAGE_UNPACKED_TOO_LARGE"), (long_names, "accepted")], ids=["zeros", "names"]
)
def test_memory_is_bounded(make: Callable[[], bytes], code: str, tmp_path: Path) -> None:
    path = tmp_path / "big.zip"
    path.write_bytes(make())
    out = subprocess.run([sys.executable, "-c", PEAK, path], check=True, capture_output=True, text=True).stdout
    answer, peak_bytes = out.split()
    assert answer == code
    assert int(peak_bytes) < 64 * MIB
