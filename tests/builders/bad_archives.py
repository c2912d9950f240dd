"""What no package may be, however it comes: rule by rule, and one list of all with the code each is refused with."""

import zlib
from collections.abc import Iterator

from tests.builders.archive_bytes import Raw, build, extra_field

MIB = 2**20
UNICODE_PATH = 0x7075

NOT_ZIP = [b"", b"PK", b"hello" * 100, b"\x1f\x8b" + bytes(100), b"#!/bin/sh\n" + build(Raw(name=b"a"))]
EMPTY: list[tuple[Raw, ...]] = [
    (),
    (Raw(name=b"a/", data=b"", method=0, mode=0o40755), Raw(name=b"b/", data=b"", method=0)),
]
UNSAFE: dict[str, list[Raw]] = {
    "parent_folder": [Raw(name=b"../evil"), Raw(name=b"a/../../evil"), Raw(name=b"a/.."), Raw(name=b"..")],
    "absolute_path": [Raw(name=b"/etc/passwd"), Raw(name=b"//host/share"), Raw(name=b"/", data=b"", method=0)],
    "drive_letter": [Raw(name=b"C:/windows"), Raw(name=b"c:evil")],
    "backslash": [Raw(name=b"a\\b"), Raw(name=b"..\\evil"), Raw(name=b"\\\\host\\share")],
    "control_character": [Raw(name=b"a\0b"), Raw(name=b"a\nb"), Raw(name=b"\x7f"), Raw(name=b"\xc2\x85", flags=0x800)],
    "name_not_utf8": [
        Raw(name=b"\xff\xfe"),
        Raw(name="数据".encode("gb18030")),
        Raw(name=b"\xed\xa0\x80", flags=0x800),
    ],
    "two_names": [
        Raw(name=b"a", extra=extra_field(UNICODE_PATH, b"\1" + zlib.crc32(b"a").to_bytes(4, "little") + b"../b"))
    ],
    "name_too_long": [Raw(name=b"n" * 256), Raw(name="é".encode() * 128, flags=0x800)],
    "path_too_long": [Raw(name=b"/".join([b"n" * 200] * 6)[1:])],
    "empty_name": [Raw(name=b""), Raw(name=b".")],
    "link": [
        Raw(name=b"a", mode=0o120777, data=b"/etc/passwd", method=0),
        Raw(name=b"a", extra=extra_field(0x000D, bytes(12) + b"target")),
        Raw(name=b"a", extra=extra_field(0x756E, bytes(14) + b"target")),
    ],
    "special_file": [Raw(name=b"a", mode=kind | 0o644) for kind in (0o010000, 0o020000, 0o060000, 0o140000, 0o040000)],
    "set_user_or_group_id": [
        Raw(name=b"a", mode=0o104755),
        Raw(name=b"a", mode=0o102755),
        Raw(name=b"a/", data=b"", method=0, mode=0o42755),
    ],
    "encrypted": [Raw(name=b"a", flags=flags) for flags in (0x1, 0x41, 0x2000)],
    "compression_method": [
        Raw(name=b"a", flags=0x20),
        *(Raw(name=b"a", method=method, payload=b"??") for method in (1, 9, 12, 14, 93, 99)),
    ],
    "folder_with_data": [Raw(name=b"a/", mode=0o40755)],
}
TOGETHER: dict[str, list[tuple[str, ...]]] = {
    "duplicate": [("a", "a"), ("a/b", "a//b"), ("a/b", "./a/b"), ("d/", "d/")],
    "case_collision": [
        ("readme", "README"),
        ("a/x", "A/y"),
        ("d/", "D/"),
        ("straße", "STRASSE"),
        ("a/b/x", "c", "a/B/y"),
    ],
    "file_as_folder": [("a", "a/b"), ("a/b/c", "a"), ("a", "a/"), ("a", "a b", "a/c"), ("A", "a/b")],
}
CORRUPT: list[tuple[str, bytes]] = [
    ("trailing_bytes", build(Raw(name=b"a"), suffix=b"junk")),
    ("trailing_bytes", build(Raw(name=b"a"), comment=b"PK\5\6")),
    ("directory", build(Raw(name=b"a"), before_end=b"junk")),
    ("directory", build(Raw(name=b"a"), comment=build(Raw(name=b"b")))),
    ("directory", build(Raw(name=b"a"), count=2)),
    ("hidden_bytes", build(Raw(name=b"a"), gap=b"junk")),
    ("hidden_bytes", build(Raw(name=b"a"), prefix=build(Raw(name=b"b")))),
    ("hidden_bytes", build(Raw(name=b"a", descriptor=b"junk"), Raw(name=b"b"))),
    ("hidden_bytes", build(Raw(name=b"a", flags=8))),
    ("hidden_bytes", build(Raw(name=b"a", flags=8, descriptor=bytes(12)))),
    ("hidden_bytes", build(Raw(name=b"a", flags=8, descriptor=bytes(30)))),
    ("overlap", build(Raw(name=b"a"), Raw(name=b"a2", header_at=0))),
    ("overlap", build(Raw(name=b"a", compressed=5000))),
    ("local_header", build(Raw(name=b"a", local_name=b"b"))),
    ("local_header", build(Raw(name=b"a", local_method=0))),
    ("local_header", build(Raw(name=b"a", local_flags=1))),
    ("local_header", build(Raw(name=b"a", local_numbers=(0, 0, 0)))),
    ("local_header", build(Raw(name=b"a", flags=8, local_numbers=(0, 7, 0)))),
    ("local_header", build(Raw(name="é".encode(), flags=0x800, local_flags=0))),
    ("local_header", build(Raw(name=b"a", local_extra=extra_field(0x000D, bytes(12) + b"x")))),
    (
        "local_header",
        build(Raw(name=b"a"), Raw(name=b"b")).replace(b"PK\3\4", b"PK\3\5").replace(b"PK\3\5", b"PK\3\4", 1),
    ),
    ("extra_field", build(Raw(name=b"a", extra=b"\1\0\xff\xff"))),
    ("extra_field", build(Raw(name=b"a", size=0xFFFFFFFF))),
    ("extra_field", build(Raw(name=b"a", extra=extra_field(1, bytes(8)) * 2))),
    ("checksum", build(Raw(name=b"a", crc=1))),
    ("size", build(Raw(name=b"a", size=8))),
    ("size", build(Raw(name=b"a", size=10))),
    ("size", build(Raw(name=b"a", size=10, method=0))),
    ("data", build(Raw(name=b"a", payload=b"\xff" * 20))),
    ("data", build(Raw(name=b"a", payload=Raw(name=b"a").stored[:-1]))),
    ("data", build(Raw(name=b"a", payload=Raw(name=b"a").stored + b"!"))),
    ("data", build(Raw(name=b"a", payload=b""))),
]


def together(names: tuple[str, ...]) -> bytes:
    entries = (Raw(name=n.encode(), flags=0x800, data=b"" if n.endswith("/") else b"x", method=0) for n in names)
    return build(*entries)


def all_bad() -> Iterator[tuple[str, bytes, str]]:
    """(what it is, its bytes, its code). None is larger than some MiB."""
    for number, data in enumerate(NOT_ZIP):
        yield f"not a zip {number}", data, "PACKAGE_NOT_ZIP"
    for number, entries in enumerate(EMPTY):
        yield f"empty {number}", build(*entries), "PACKAGE_EMPTY"
    for rule, alone in UNSAFE.items():
        for number, entry in enumerate(alone):
            yield f"{rule} {number}", build(Raw(name=b"main.py"), entry), "PACKAGE_UNSAFE_ENTRY"
    for rule, cases in TOGETHER.items():
        for names in cases:
            yield f"{rule} {names}", together(names), "PACKAGE_UNSAFE_ENTRY"
    for number, (reason, data) in enumerate(CORRUPT):
        yield f"{reason} {number}", data, "PACKAGE_CORRUPT"
    yield "cut", build(Raw(name=b"a"), Raw(name=b"b"))[:-5], "PACKAGE_CORRUPT"
    yield "many", build(*(Raw(name=b"%d" % n, data=b"") for n in range(10_001))), "PACKAGE_TOO_MANY_ENTRIES"
    yield "entry of zeros", build(Raw(name=b"bomb", data=bytes(10 * MIB))), "PACKAGE_RATIO"
    yield "all zeros", build(*(Raw(name=b"%d" % n, data=bytes(MIB)) for n in range(5))), "PACKAGE_RATIO"
    yield "bomb that lies", build(Raw(name=b"bomb", data=bytes(50 * MIB), size=100)), "PACKAGE_CORRUPT"
