"""ZIPs byte by byte, so that tests can tell lies that `zipfile` would not write."""

import io
import struct
import zlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One entry. What starts with `local_` is what the local header says instead."""

    name: bytes
    data: bytes = b"print(1)\n"
    method: int = 8
    flags: int = 0
    mode: int = 0o100644
    extra: bytes = b""
    payload: bytes | None = None
    crc: int | None = None
    size: int | None = None
    compressed: int | None = None
    local_name: bytes | None = None
    local_extra: bytes | None = None
    local_method: int | None = None
    local_flags: int | None = None
    local_numbers: tuple[int, int, int] | None = None
    """(crc, compressed, size)"""
    descriptor: bytes = b""
    header_at: int | None = None
    comment: bytes = b""

    @property
    def stored(self) -> bytes:
        if self.payload is not None:
            return self.payload
        if self.method == 0:
            return self.data
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        return deflater.compress(self.data) + deflater.flush()

    @property
    def numbers(self) -> tuple[int, int, int]:
        crc = zlib.crc32(self.data) if self.crc is None else self.crc
        compressed = len(self.stored) if self.compressed is None else self.compressed
        return crc, compressed, len(self.data) if self.size is None else self.size


def build(
    *entries: Raw,
    prefix: bytes = b"",
    gap: bytes = b"",
    before_end: bytes = b"",
    suffix: bytes = b"",
    comment: bytes = b"",
    count: int | None = None,
) -> bytes:
    out = io.BytesIO()
    out.write(prefix)
    records: list[bytes] = []
    for entry in entries:
        header_at = out.tell() if entry.header_at is None else entry.header_at
        if entry.header_at is None:
            out.write(local(entry))
            out.write(entry.stored + entry.descriptor)
        records.append(central(entry, header_at))
    out.write(gap)
    start = out.tell()
    directory = b"".join(records)
    out.write(directory + before_end)
    told = len(entries) if count is None else count
    out.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, told, told, len(directory), start, len(comment)))
    out.write(comment + suffix)
    return out.getvalue()


def local(entry: Raw) -> bytes:
    name = entry.name if entry.local_name is None else entry.local_name
    extra = entry.extra if entry.local_extra is None else entry.local_extra
    flags = entry.flags if entry.local_flags is None else entry.local_flags
    method = entry.method if entry.local_method is None else entry.local_method
    numbers = entry.numbers if entry.local_numbers is None else entry.local_numbers
    header = struct.pack("<4s5H3L2H", b"PK\3\4", 20, flags, method, 0, 0x21, *numbers, len(name), len(extra))
    return header + name + extra


def central(entry: Raw, header_at: int) -> bytes:
    made_by = (3 << 8) | 20
    lengths = (len(entry.name), len(entry.extra), len(entry.comment))
    fixed = ("<4s6H3L5H2L", b"PK\1\2", made_by, 20, entry.flags, entry.method, 0, 0x21, *entry.numbers, *lengths)
    return struct.pack(*fixed, 0, 0, entry.mode << 16, header_at) + entry.name + entry.extra + entry.comment


def extra_field(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data
