"""What the entries of a package may be called and be (requirements §4.1), each alone and beside the others."""

import re
import stat
from itertools import pairwise

from kernel.errors import Problem, problem
from runtime_envs.archive_directory import Member, corrupt, shown, unsafe

STORED, DEFLATED = 0, 8
_MAX_COMPONENT_BYTES = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
_MACOS_FOLDER = "__MACOSX"


def check_entry(member: Member) -> None:
    rule = _broken_name_rule(member.name) or _broken_kind_rule(member)
    if rule:
        raise unsafe(member.name, rule)
    if member.method == STORED and member.compressed_bytes != member.size_bytes:
        raise corrupt("size", member.name)


def check_together(members: list[Member]) -> None:
    """No two entries may land on one path, also where the file system does not tell upper from lower case."""
    # Sorted by folded path, "/" lowest, whatever shares a folder stands in one block: neighbours show every collision.
    ordered = sorted(((_folded(path), member) for member in members if (path := _path(member.name))), key=_first)
    for (folded, member), (next_folded, other) in pairwise(ordered):
        path, other_path = _path(member.name), _path(other.name)
        same = folded == next_folded
        if not member.is_folder and (next_folded.startswith(folded + b"\0") or (same and other.is_folder)):
            raise unsafe(other.name, "file_as_folder")
        if same and path == other_path:
            raise unsafe(other.name, "duplicate")
        if same or _spell_a_folder_differently(path, other_path):
            raise unsafe(other.name, "case_collision")


def warnings_about(members: list[Member]) -> tuple[Problem, ...]:
    found = []
    paths = [_path(member.name) for member in members if not member.is_folder]
    tops = {path.partition("/")[0] for path in paths} - {_MACOS_FOLDER}
    if len(tops) == 1 and tops.isdisjoint(paths):
        found.append(problem("SINGLE_TOP_FOLDER", folder=tops.pop()))
    if any(_is_macos_metadata(path) for path in paths):
        found.append(problem("MACOS_METADATA"))
    unmarked = [member.name for member in members if not member.is_marked_utf8]
    if unmarked:
        found.append(problem("NAMES_NOT_MARKED_UTF8", count=len(unmarked), entry=shown(unmarked[0])))
    return tuple(found)


def _broken_name_rule(name: str) -> str | None:
    parts = name.split("/")
    if _CONTROL.search(name):
        return "control_character"
    if "\\" in name:
        return "backslash"
    if name.startswith("/"):
        return "absolute_path"
    if _DRIVE.match(name):
        return "drive_letter"
    if ".." in parts:
        return "parent_folder"
    if any(len(part.encode()) > _MAX_COMPONENT_BYTES for part in parts):
        return "name_too_long"
    return None if _path(name) or name == "./" else "empty_name"


def _broken_kind_rule(member: Member) -> str | None:
    kind = stat.S_IFMT(member.mode)
    if member.is_encrypted:
        return "encrypted"
    if kind == stat.S_IFLNK or member.has_link:
        return "link"
    if kind not in ((0, stat.S_IFREG, stat.S_IFDIR) if member.is_folder else (0, stat.S_IFREG)):
        return "special_file"
    if member.mode & (stat.S_ISUID | stat.S_ISGID):
        return "set_user_or_group_id"
    if member.method not in (STORED, DEFLATED) or member.is_patch:
        return "compression_method"
    return "folder_with_data" if member.is_folder and member.size_bytes else None


def _path(name: str) -> str:
    """As a file system reads it: `./a//b` is `a/b`."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _folded(path: str) -> bytes:
    return path.casefold().replace("/", "\0").encode()


def _first(pair: tuple[bytes, Member]) -> bytes:
    return pair[0]


def _spell_a_folder_differently(path: str, other: str) -> bool:
    for one, two in zip(path.split("/"), other.split("/"), strict=False):
        if one != two:
            return one.casefold() == two.casefold()
    return False


def _is_macos_metadata(path: str) -> bool:
    last = path.rpartition("/")[2]
    return path.startswith(_MACOS_FOLDER + "/") or last == ".DS_Store" or last.startswith("._")
