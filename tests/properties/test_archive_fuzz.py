"""A fuzz target over the check of ZIPs: some seconds in every run; `python -m tests.properties.test_archive_fuzz 600`.

Structure is drawn first and bytes are broken afterwards, so that many inputs pass the cheap rules and reach the last.
"""

import io
import sys
import time
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

from kernel.errors import InvalidInput
from runtime_envs.archive import ArchiveReport, inspect_archive
from runtime_envs.archive_data import ArchiveLimits
from tests.builders.archive_bytes import Raw, build, extra_field

FUZZ_S = 5
SLOWEST_S = 2
LIMITS = ArchiveLimits(max_unpacked_bytes=2**22)
NAMES = (b"a", b"A", b"a/", b"a/b", b"../a", b"/a", b"a\\b", b"C:a", b"", b".", b"a//b", b"n" * 256, b"\xff", b"a\0b")
NUMBERS = (0, 1, 9, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFE, 0xFFFF_FFFF)


def test_whatever_comes_is_refused_in_our_words_or_reads_the_same() -> None:
    assert fuzz(seed=time.time_ns(), for_s=FUZZ_S) > 100


def fuzz(*, seed: int, for_s: float) -> int:
    """How many were tried."""
    random, count, until = Random(seed), 0, time.monotonic() + for_s  # noqa: S311 - no secret
    while time.monotonic() < until:
        data, started = broken(random, archive(random)), time.monotonic()
        try:
            check(data)
        except Exception as error:
            raise AssertionError(f"seed {seed}, number {count}: {data[:4096].hex()}") from error
        assert time.monotonic() - started < SLOWEST_S, f"seed {seed}, number {count}"
        count += 1
    return count


def check(data: bytes) -> None:
    found = _inspected(data)
    if isinstance(found, InvalidInput):
        assert found.code.startswith("PACKAGE_")
        assert all(str(value).isprintable() for value in found.params.values())
        return
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        sizes = [len(read.read(one)) for one in read.infolist()]
    assert sizes == [entry.size_bytes for entry in found.entries]


def _inspected(data: bytes) -> ArchiveReport | InvalidInput:
    try:
        return inspect_archive(io.BytesIO(data), LIMITS)
    except InvalidInput as error:
        return error


def archive(random: Random) -> bytes:
    entries = (entry(random, number) for number in range(random.randrange(5)))
    odd = {name: random.randbytes(random.randrange(9)) for name in ODD if random.random() < 0.05}
    return build(*entries, **odd)  # type: ignore[arg-type]  # all of them are bytes


ODD = ("prefix", "gap", "before_end", "suffix", "comment")


def entry(random: Random, number: int) -> Raw:
    name = b"%d.py" % number if random.random() < 0.7 else random.choice(NAMES)
    data = random.choice((b"", b"x", random.randbytes(99), bytes(random.choice((500, 2**20)))))
    plain = Raw(name=name, data=data, method=random.choice((0, 8)))
    if random.random() < 0.6:
        return plain
    lies: dict[str, Callable[[], Any]] = {
        "method": lambda: random.choice((0, 1, 8, 9, 99)),
        "flags": lambda: random.choice((0, 1, 8, 0x20, 0x800, 0x2000)),
        "mode": lambda: random.choice((0, 0o100644, 0o104755, 0o120777, 0o40755, 0o20644)),
        "extra": lambda: extra_field(random.choice((1, 0x000D, 0x7075, 0x756E, 7)), random.randbytes(16)),
        "crc": lambda: random.choice(NUMBERS),
        "size": lambda: random.choice(NUMBERS),
        "compressed": lambda: random.choice(NUMBERS),
        "local_name": lambda: random.choice(NAMES),
        "local_numbers": lambda: tuple(random.choices(NUMBERS, k=3)),
        "descriptor": lambda: random.randbytes(random.choice((12, 16, 20, 24))),
        "header_at": lambda: random.choice((0, 7)),
    }
    chosen = random.sample(sorted(lies), random.randrange(1, 3))
    known = {name: getattr(plain, name) for name in ("name", "data", "method")}
    return Raw(**{**known, **{name: lies[name]() for name in chosen}})


def broken(random: Random, data: bytes) -> bytes:
    """Left as it is, or with some bytes changed, taken out, doubled."""
    for _ in range(random.choice((0, 0, 1, 1, 2, 8))):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data = data[:at] + random.randbytes(1) + data[at + 1 :]
            case 1:
                data = data[:at] + random.randbytes(random.randrange(4)) + data[at:]
            case 2:
                data = data[:at] + data[at + random.randrange(9) :]
            case _:
                data = data[:at] + random.choice(NUMBERS).to_bytes(4, "little") + data[at + 4 :]
    return data


if __name__ == "__main__":
    sys.stdout.write(f"{fuzz(seed=time.time_ns(), for_s=float(sys.argv[1]))} tried\n")
