"""Where everything lies in a ZIP, read so strictly that every other reader must see the same files.

Directory and local headers must agree and the entries must fill the file from its first byte to the directory: what
lies outside, overlaps or is told twice could be one thing to us and another to the node that unpacks it.
Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kernel.errors import InvalidInput

LOCAL_SIGNATURE = b"PK\3\4"
END_SIGNATURE = b"PK\5\6"
MAX_PATH_BYTES = 1024

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<2H")
_MAX_COMMENT_BYTES = 0xFFFF
_MAX_VERSION = 63
"""Of the format; Python's `zipfile` reads nothing above it."""
_NARROW = 0xFFFF_FFFF
"""In a 32-bit field: look in the ZIP64 extra."""

_ENCRYPTED, _DESCRIPTOR, _PATCH, _UTF8 = 0x2041, 0x0008, 0x0020, 0x0800  # bits of the flags
_ZIP64, _PKWARE_UNIX, _ASI_UNIX, _UNICODE_PATH = 0x0001, 0x000D, 0x756E, 0x7075  # kinds of extra fields

Triple = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One entry as the directory tells of it; nothing in it is believed yet."""

    name: str
    flags: int
    method: int
    crc: int
    compressed_bytes: int
    size_bytes: int
    mode: int
    """Unix mode, 0 when the writer gave none."""
    has_link: bool
    """A Unix extra field names the target of a link."""
    header_at: int

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")

    @property
    def is_encrypted(self) -> bool:
        return bool(self.flags & _ENCRYPTED)

    @property
    def is_patch(self) -> bool:
        return bool(self.flags & _PATCH)

    @property
    def is_marked_utf8(self) -> bool:
        """Without the mark Python, and so Ray, reads the name in the code page of the first IBM PC."""
        return bool(self.flags & _UTF8) or self.name.isascii()


@dataclass(frozen=True, slots=True)
class Directory:
    members: list[Member]
    start: int


def corrupt(reason: str, entry: str = "") -> InvalidInput:
    return InvalidInput("PACKAGE_CORRUPT", reason=reason, entry=shown(entry))


def unsafe(entry: str, rule: str) -> InvalidInput:
    return InvalidInput("PACKAGE_UNSAFE_ENTRY", entry=shown(entry), rule=rule)


def shown(name: str) -> str:
    """A name out of a stranger's archive, fit for one line of text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name[:200])


def read_directory(file: BinaryIO, size_bytes: int, *, max_entries: int) -> Directory:
    count, start, end = _read_end(file, size_bytes)
    if count > max_entries:
        raise InvalidInput("PACKAGE_TOO_MANY_ENTRIES", limit=max_entries, count=count)
    members: list[Member] = []
    file.seek(start)
    while len(members) < count and file.tell() < end:
        members.append(_read_central(file))
    if len(members) != count or file.tell() != end:
        raise corrupt("directory")
    return Directory(members, start)


def locate_data(file: BinaryIO, directory: Directory) -> list[tuple[Member, int]]:
    """Each entry with the offset of its data, in the order of the file."""
    members = sorted(directory.members, key=lambda member: member.header_at)
    bounds = [*(member.header_at for member in members), directory.start]
    if bounds[0] != 0:
        raise corrupt("hidden_bytes")
    return [(member, _check_local(file, member, end)) for member, end in zip(members, bounds[1:], strict=True)]


def _read_end(file: BinaryIO, size_bytes: int) -> Triple:
    """(entries, start, end) of the directory."""
    file.seek(max(0, size_bytes - _LOCATOR64.size - _END.size - _MAX_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(END_SIGNATURE, 0, max(0, len(tail) - _END.size + len(END_SIGNATURE)))
    if at < 0:
        raise corrupt("no_directory")
    _, disk, first_disk, here, count, length, start, comment_bytes = _END.unpack_from(tail, at)
    comment = tail[at + _END.size :]
    if len(comment) != comment_bytes or END_SIGNATURE in comment:
        raise corrupt("trailing_bytes")
    end = size_bytes - len(tail) + at
    locator = tail[max(0, at - _LOCATOR64.size) : at]
    if locator.startswith(b"PK\6\7") and len(locator) == _LOCATOR64.size:
        end, count, length, start = _read_end64(file, locator, end, (here, count, length, start))
    elif disk or first_disk or here != count:
        raise corrupt("split_archive")
    if start + length != end:
        raise corrupt("directory")
    return count, start, end


def _read_end64(
    file: BinaryIO, locator: bytes, end: int, narrow: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    """(end of the directory, entries, length, start); the narrow record may only repeat them or leave them open."""
    _, disk, at, disks = _LOCATOR64.unpack(locator)
    if at + _END64.size + _LOCATOR64.size != end or disk or disks > 1:
        raise corrupt("directory")
    file.seek(at)
    signature, rest, _, _, disk, first_disk, here, count, length, start = _END64.unpack(file.read(_END64.size))
    if signature != b"PK\6\6" or rest != _END64.size - 12:
        raise corrupt("directory")
    if disk or first_disk or here != count:
        raise corrupt("split_archive")
    left_open = (0xFFFF, 0xFFFF, _NARROW, _NARROW)
    if any(told not in pair for told, *pair in zip(narrow, (here, count, length, start), left_open, strict=True)):
        raise corrupt("directory")
    return at, count, length, start


def _read_central(file: BinaryIO) -> Member:
    header = file.read(_CENTRAL.size)
    if len(header) < _CENTRAL.size or not header.startswith(b"PK\1\2"):
        raise corrupt("directory")
    _, _, version, flags, method, _, _, crc, compressed, size, *rest = _CENTRAL.unpack(header)
    name_bytes, extra_bytes, comment_bytes, disk, _, attributes, at = rest
    raw_name = file.read(name_bytes)
    if name_bytes > MAX_PATH_BYTES:
        raise unsafe(raw_name.decode(errors="replace"), "path_too_long")
    extras = _extras(file.read(extra_bytes))
    file.seek(comment_bytes, 1)
    if disk not in (0, 0xFFFF):
        raise corrupt("split_archive")
    if version & 0xFF > _MAX_VERSION:
        raise corrupt("version")
    size, compressed, at = _widen(extras, size, compressed, at)
    return Member(
        name=_name(raw_name, extras),
        flags=flags,
        method=method,
        crc=crc,
        compressed_bytes=compressed,
        size_bytes=size,
        mode=attributes >> 16,
        has_link=_has_link(extras),
        header_at=at,
    )


def _check_local(file: BinaryIO, member: Member, end: int) -> int:
    """Offset of the data, once the local header agrees with the directory and the entry ends exactly at `end`."""
    file.seek(member.header_at)
    header = file.read(_LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(LOCAL_SIGNATURE):
        raise corrupt("local_header", member.name)
    _, _, flags, method, _, _, crc, compressed, size, name_bytes, extra_bytes = _LOCAL.unpack(header)
    name = file.read(name_bytes)
    extras = _extras(file.read(extra_bytes))
    size, compressed = _widen(extras, size, compressed)
    truth = (member.crc, member.compressed_bytes, member.size_bytes)
    numbers = [*zip((crc, compressed, size), truth, strict=True)]
    if any(told != true and (told or not flags & _DESCRIPTOR) for told, true in numbers):
        raise corrupt("local_header", member.name)
    same_flags = _ENCRYPTED if member.name.isascii() else _ENCRYPTED | _UTF8
    if method != member.method or (flags ^ member.flags) & same_flags or _has_link(extras) != member.has_link:
        raise corrupt("local_header", member.name)
    if _name(name, extras) != member.name:
        raise corrupt("local_header", member.name)
    data_at: int = member.header_at + _LOCAL.size + name_bytes + extra_bytes
    _check_gap(file, data_at + member.compressed_bytes, end, member, truth if flags & _DESCRIPTOR else None)
    return data_at


def _check_gap(file: BinaryIO, start: int, end: int, member: Member, descriptor: Triple | None) -> None:
    """Between the data and what comes next lies the data descriptor, if one is announced, and nothing else."""
    if start > end:
        raise corrupt("overlap", member.name)
    file.seek(start)
    gap = file.read(min(end - start, 25))
    if not (_is_descriptor(gap, descriptor) if descriptor else not gap):
        raise corrupt("hidden_bytes", member.name)


def _is_descriptor(data: bytes, truth: Triple) -> bool:
    """Its signature is optional and its sizes have 32 or 64 bits; the length tells which."""
    shape = {12: "<3L", 16: "<4x3L", 20: "<L2Q", 24: "<4xL2Q"}.get(len(data))
    if shape is None or (shape[1] == "4" and not data.startswith(b"PK\7\x08")):
        return False
    return struct.unpack(shape, data) == truth


def _extras(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + _EXTRA.size <= len(data):
        kind, length = _EXTRA.unpack_from(data, at)
        at += _EXTRA.size + length
        if at > len(data):
            raise corrupt("extra_field")
        if kind not in (_ZIP64, _PKWARE_UNIX, _ASI_UNIX, _UNICODE_PATH):
            continue
        if kind in found:
            raise corrupt("extra_field")
        found[kind] = data[at - length : at]
    return found


def _widen(extras: dict[int, bytes], *values: int) -> Iterator[int]:
    wide = extras.get(_ZIP64, b"")
    for value in values:
        if value != _NARROW:
            yield value
            continue
        if len(wide) < 8:
            raise corrupt("extra_field")
        yield int.from_bytes(wide[:8], "little")
        wide = wide[8:]


def _name(raw: bytes, extras: dict[int, bytes]) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise unsafe(raw.decode(errors="backslashreplace"), "name_not_utf8") from None
    second = extras.get(_UNICODE_PATH)
    if second is not None and second != b"\1" + zlib.crc32(raw).to_bytes(4, "little") + raw:
        raise unsafe(name, "two_names")
    return name


def _has_link(extras: dict[int, bytes]) -> bool:
    """The target stands behind 12 bytes in PKWARE's Unix field, behind 14 in ASi's."""
    return len(extras.get(_PKWARE_UNIX, b"")) > 12 or len(extras.get(_ASI_UNIX, b"")) > 14
