"""Every rule of requirements §4.1 with the smallest archive that breaks it."""

import io
import struct
import zipfile
import zlib

import pytest

from kernel.errors import InvalidInput, problem
from runtime_envs.archive import ArchiveLimits, ArchiveReport, inspect_archive
from tests.unit.archive_bytes import Raw, build, extra_field

MIB = 1024 * 1024
LIMITS = ArchiveLimits()
UNICODE_PATH = 0x7075


def inspect(data: bytes, limits: ArchiveLimits = LIMITS) -> ArchiveReport:
    return inspect_archive(io.BytesIO(data), limits)


def refusal(data: bytes, limits: ArchiveLimits = LIMITS) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        inspect(data, limits)
    return caught.value


def corrupt_reason(data: bytes) -> str:
    error = refusal(data)
    assert error.code == "PACKAGE_CORRUPT"
    return str(error.params["reason"])


class TestAccepts:
    def test_report(self) -> None:
        report = inspect(
            build(Raw(name=b"src/", data=b"", method=0, mode=0o40755), Raw(name=b"src/main.py"), Raw(name=b"a"))
        )
        assert [(e.name, e.size_bytes) for e in report.entries] == [("src/", 0), ("src/main.py", 9), ("a", 9)]
        assert report.unpacked_bytes == 18
        assert report.warnings == ()

    @pytest.mark.parametrize(
        "entry",
        [
            Raw(name="数据.txt".encode(), flags=0x800),
            Raw(name=b"./here.py"),
            Raw(name=b"a..b/...c/d.."),
            Raw(name=b"n" * 255),
            Raw(name=b"run.sh", mode=0o100755),
            Raw(name=b"no_mode", mode=0),
            Raw(name=b"with_comment", comment=b"c" * 300),
            Raw(name=b"timestamps", extra=extra_field(0x5455, b"\1\0\0\0\0")),
            Raw(
                name=b"same_name_twice",
                extra=extra_field(
                    UNICODE_PATH, b"\1" + zlib.crc32(b"same_name_twice").to_bytes(4, "little") + b"same_name_twice"
                ),
            ),
            Raw(name=b"empty", data=b""),
            Raw(name=b"x", method=0),
        ],
        ids=lambda entry: entry.name.decode(errors="replace")[:20],
    )
    def test_one_entry(self, entry: Raw) -> None:
        assert [e.name for e in inspect(build(entry)).entries] == [entry.name.decode()]

    @pytest.mark.parametrize("shape", ["<3L", "<4s3L", "<L2Q", "<4sL2Q"])
    def test_data_descriptor(self, shape: str) -> None:
        entry = Raw(name=b"a", flags=8, local_numbers=(0, 0, 0))
        signature = (b"PK\7\x08",) if "s" in shape else ()
        described = Raw(
            name=b"a", flags=8, local_numbers=(0, 0, 0), descriptor=struct.pack(shape, *signature, *entry.numbers)
        )
        assert inspect(build(described, Raw(name=b"b"))).unpacked_bytes == 18

    def test_stream_of_zipfile_with_zip64(self) -> None:
        class Unseekable(io.BytesIO):
            def seekable(self) -> bool:
                return False

            def tell(self) -> int:
                raise OSError

        out = Unseekable()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("a", "b"):
                with archive.open(name, "w", force_zip64=True) as file:
                    file.write(b"hello")
        assert inspect(out.getvalue()).unpacked_bytes == 10

    def test_archive_comment(self) -> None:
        assert inspect(build(Raw(name=b"a"), comment=b"made by hand " * 5000)).unpacked_bytes == 9

    def test_at_the_bounds(self) -> None:
        limits = ArchiveLimits(max_entries=2, max_unpacked_bytes=18)
        assert inspect(build(Raw(name=b"a"), Raw(name=b"b")), limits).unpacked_bytes == 18

    def test_nested_archives_are_not_opened(self) -> None:
        bomb = build(Raw(name=b"zeros", data=bytes(30 * MIB)))
        assert inspect(build(Raw(name=b"inner.zip", data=bomb, method=0))).unpacked_bytes == len(bomb)

    def test_empty_where_that_is_allowed(self) -> None:
        assert inspect(build(), ArchiveLimits(may_be_empty=True)).entries == ()


class TestNotZip:
    @pytest.mark.parametrize(
        "data", [b"", b"PK", b"hello" * 100, b"\x1f\x8b" + bytes(100), b"#!/bin/sh\n" + build(Raw(name=b"a"))]
    )
    def test_refused(self, data: bytes) -> None:
        assert refusal(data).code == "PACKAGE_NOT_ZIP"


class TestEmpty:
    @pytest.mark.parametrize(
        "entries", [(), (Raw(name=b"a/", data=b"", method=0, mode=0o40755), Raw(name=b"b/", data=b"", method=0))]
    )
    def test_refused(self, entries: tuple[Raw, ...]) -> None:
        assert refusal(build(*entries)).code == "PACKAGE_EMPTY"


class TestBounds:
    def test_entries(self) -> None:
        error = refusal(build(*(Raw(name=b"%d" % n) for n in range(3))), ArchiveLimits(max_entries=2))
        assert (error.code, error.params) == ("PACKAGE_TOO_MANY_ENTRIES", {"limit": 2, "count": 3})

    def test_more_entries_than_told(self) -> None:
        data = build(*(Raw(name=b"%d" % n) for n in range(3)), count=2)
        assert corrupt_reason(data) == "directory"

    def test_unpacked(self) -> None:
        error = refusal(build(Raw(name=b"a", data=b"x" * 20)), ArchiveLimits(max_unpacked_bytes=19))
        assert (error.code, error.params) == ("PACKAGE_UNPACKED_TOO_LARGE", {"limit_bytes": 19})

    def test_ratio_of_one_entry(self) -> None:
        error = refusal(build(Raw(name=b"bomb", data=bytes(10 * MIB)), Raw(name=b"ballast", data=bytes(MIB), method=0)))
        assert (error.code, error.params) == ("PACKAGE_RATIO", {"entry": "bomb", "limit": 200})

    def test_ratio_of_all(self) -> None:
        error = refusal(build(*(Raw(name=b"%d" % n, data=bytes(MIB)) for n in range(5))))
        assert (error.code, error.params["limit"]) == ("PACKAGE_RATIO", 100)

    def test_one_entry_below_a_mebibyte_may_be_as_compressible_as_it_likes(self) -> None:
        data = build(Raw(name=b"zeros", data=bytes(MIB)), Raw(name=b"ballast", data=bytes(20_000), method=0))
        assert inspect(data).unpacked_bytes == MIB + 20_000

    def test_lying_bomb_stops_at_the_told_size(self) -> None:
        error = refusal(build(Raw(name=b"bomb", data=bytes(50 * MIB), size=100)))
        assert (error.code, error.params) == ("PACKAGE_CORRUPT", {"reason": "size", "entry": "bomb"})


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


class TestUnsafeEntries:
    @pytest.mark.parametrize(
        ("rule", "entry"), [(rule, entry) for rule, entries in UNSAFE.items() for entry in entries]
    )
    def test_alone(self, rule: str, entry: Raw) -> None:
        error = refusal(build(Raw(name=b"main.py"), entry))
        assert (error.code, error.params["rule"]) == ("PACKAGE_UNSAFE_ENTRY", rule)

    @pytest.mark.parametrize(("rule", "names"), [(rule, names) for rule, cases in TOGETHER.items() for names in cases])
    def test_together(self, rule: str, names: tuple[str, ...]) -> None:
        entries = (Raw(name=n.encode(), flags=0x800, data=b"" if n.endswith("/") else b"x", method=0) for n in names)
        error = refusal(build(*entries))
        assert (error.code, error.params["rule"]) == ("PACKAGE_UNSAFE_ENTRY", rule)

    @pytest.mark.parametrize(
        "names", [("a", "b"), ("a/b", "a/c"), ("a/", "a/b"), ("a b", "a/b"), ("ab", "a/b"), ("a", "aa/b")]
    )
    def test_neighbours_that_do_not_collide(self, names: tuple[str, ...]) -> None:
        entries = (Raw(name=n.encode(), data=b"" if n.endswith("/") else b"x", method=0) for n in names)
        assert len(inspect(build(*entries)).entries) == len(names)

    def test_the_name_is_told_in_one_safe_line(self) -> None:
        error = refusal(build(Raw(name=b"a\x1b[31m\nb")))
        assert error.params["entry"] == "a\\x1b[31m\\nb"


class TestCorrupt:
    @pytest.mark.parametrize("keep", [30, 50, -1, -22])
    def test_cut(self, keep: int) -> None:
        assert corrupt_reason(build(Raw(name=b"a"), Raw(name=b"b"))[:keep]) == "no_directory"

    def test_beginning_cut_off(self) -> None:
        whole = build(Raw(name=b"a"), Raw(name=b"b"))
        second = whole.index(b"PK\3\4", 4)
        assert corrupt_reason(whole[second:]) == "directory"

    @pytest.mark.parametrize(
        ("reason", "data"),
        [
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
        ],
    )
    def test_reason(self, reason: str, data: bytes) -> None:
        assert corrupt_reason(data) == reason

    def test_split_over_disks(self) -> None:
        data = bytearray(build(Raw(name=b"a")))
        data[-18] = 1
        assert corrupt_reason(bytes(data)) == "split_archive"

    def test_zip64_end_that_tells_another_story(self) -> None:
        plain = build(Raw(name=b"a"))
        end_at = len(plain) - 22
        start = plain.index(b"PK\1\2")
        wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, end_at - start, start)
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, end_at, 1)
        assert inspect(plain[:end_at] + wide + locator + plain[end_at:]).unpacked_bytes == 9
        other = wide.replace(struct.pack("<2Q", 1, 1), struct.pack("<2Q", 0, 0))
        assert corrupt_reason(plain[:end_at] + other + locator + plain[end_at:]) == "directory"


class TestWarnings:
    @pytest.mark.parametrize(
        ("names", "warnings"),
        [
            (["proj/main.py", "proj/a/b.py"], [problem("SINGLE_TOP_FOLDER", folder="proj")]),
            (["main.py"], []),
            (["./main.py"], []),
            (["main.py", "lib/a.py"], []),
            (["a/b", "c/d"], []),
            (["p/a", "__MACOSX/p/._a"], [problem("SINGLE_TOP_FOLDER", folder="p"), problem("MACOS_METADATA")]),
            (["a", ".DS_Store"], [problem("MACOS_METADATA")]),
            (["a", "数据"], [problem("NAMES_NOT_MARKED_UTF8", count=1, entry="数据")]),
        ],
    )
    def test_of_names(self, names: list[str], warnings: list[object]) -> None:
        assert list(inspect(build(*(Raw(name=name.encode()) for name in names))).warnings) == warnings
