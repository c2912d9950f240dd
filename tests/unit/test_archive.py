"""Every rule of requirements §4.1 with the smallest archive that breaks it."""

import io
import struct
import zipfile
import zlib

import pytest

from kernel.errors import InvalidInput, problem
from runtime_envs.archive import ArchiveReport, inspect_archive
from runtime_envs.archive_data import ArchiveLimits
from tests.builders.archive_bytes import Raw, build, extra_field
from tests.builders.bad_archives import CORRUPT, EMPTY, MIB, NOT_ZIP, TOGETHER, UNICODE_PATH, UNSAFE, together

LIMITS = ArchiveLimits()


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
    @pytest.mark.parametrize("data", NOT_ZIP)
    def test_refused(self, data: bytes) -> None:
        assert refusal(data).code == "PACKAGE_NOT_ZIP"


class TestEmpty:
    @pytest.mark.parametrize("entries", EMPTY)
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


class TestLarge:
    """Looked through by two threads at once."""

    BALLAST = tuple(Raw(name=b"%d.bin" % n, data=bytes([n]) * MIB, method=0) for n in range(8))

    def test_every_byte_is_counted(self) -> None:
        small = tuple(Raw(name=b"%d.py" % n, data=b"x" * n) for n in range(500))
        assert inspect(build(*self.BALLAST, *small)).unpacked_bytes == 8 * MIB + sum(range(500))

    def test_the_first_in_the_file_is_told(self) -> None:
        bad = (Raw(name=b"first", data=bytes(MIB), crc=1, method=0), Raw(name=b"second", data=b"x", crc=1))
        for _ in range(20):
            assert refusal(build(*self.BALLAST, *bad)).params == {"reason": "checksum", "entry": "first"}

    def test_all_together(self) -> None:
        error = refusal(build(*self.BALLAST), ArchiveLimits(max_unpacked_bytes=8 * MIB - 1))
        assert error.code == "PACKAGE_UNPACKED_TOO_LARGE"


class TestUnsafeEntries:
    @pytest.mark.parametrize(
        ("rule", "entry"), [(rule, entry) for rule, entries in UNSAFE.items() for entry in entries]
    )
    def test_alone(self, rule: str, entry: Raw) -> None:
        error = refusal(build(Raw(name=b"main.py"), entry))
        assert (error.code, error.params["rule"]) == ("PACKAGE_UNSAFE_ENTRY", rule)

    @pytest.mark.parametrize(("rule", "names"), [(rule, names) for rule, cases in TOGETHER.items() for names in cases])
    def test_together(self, rule: str, names: tuple[str, ...]) -> None:
        error = refusal(together(names))
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

    @pytest.mark.parametrize(("reason", "data"), CORRUPT)
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
