"""Tables that never wrap: widths are counted in terminal cells, and only free text is cut."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_GAP = "  "
_LEAST_FREE = 8
_WIDE = frozenset("WF")

Record = dict[str, Any]
Value = Callable[[Record], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """`value` is a path into the record (`run_counts.running`) or a function of it."""

    header: str
    value: str | Value
    is_free: bool = False
    """Free text: may be cut. Names, ids and numbers never are."""
    is_extra: bool = False
    """Shown by `-o wide` only."""
    paint: Callable[[str], str] | None = None


def column(header: str, value: str | Value, **traits: Any) -> Column:
    return Column(header=header, value=value, **traits)


def lay_out(columns: Sequence[Column], records: Sequence[Record], width: int | None) -> list[str]:
    """Lines of the table, the header first. With a width the least important, rightmost columns may be missing."""
    rows = [[cell_text(value_of(record, column)) for column in columns] for record in records]
    headers = [column.header for column in columns]
    needed = [max(cells(row[at]) for row in [headers, *rows]) for at in range(len(columns))]
    widths = _shrink(columns, needed, width)
    header = _line(headers, widths, [None] * len(widths))
    return [header, *(_line(row, widths, [column.paint for column in columns]) for row in rows)]


def value_of(record: Record, column: Column) -> object:
    if not isinstance(column.value, str):
        return column.value(record)
    value: Any = record
    for key in column.value.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def cell_text(value: object) -> str:
    """One line without control characters: what other people wrote must not steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in _plain(value))


def cells(text: str) -> int:
    """How many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(character) for character in text)


def cut(text: str, width: int) -> str:
    if cells(text) <= width:
        return text
    used = 0
    for at, character in enumerate(text):
        used += _cells_of(character)
        if used > width - 1:
            return f"{text[:at]}…"
    return text


def _shrink(columns: Sequence[Column], needed: Sequence[int], width: int | None) -> list[int]:
    """Take the excess from free text, the widest first; then leave out columns from the right."""
    widths = list(needed)
    if width is None:
        return widths
    while excess := max(0, sum(widths) + len(_GAP) * (len(widths) - 1) - width):
        free = [at for at in range(len(widths)) if columns[at].is_free and widths[at] > _LEAST_FREE]
        if free:
            widest = max(free, key=lambda at: widths[at])
            widths[widest] = max(_LEAST_FREE, widths[widest] - excess)
        elif len(widths) > 1:
            widths.pop()
        else:
            break
    return widths


def _line(row: Sequence[str], widths: Sequence[int], paints: Sequence[Callable[[str], str] | None]) -> str:
    shown = []
    for text, width, paint in zip(row, widths, paints, strict=False):
        short = cut(text, width)
        padding = " " * (width - cells(short))
        shown.append((paint(short) if paint else short) + padding)
    return _GAP.join(shown).rstrip()


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def _plain(value: object) -> str:
    if value is None or value in ("", {}, []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_plain(entry)}" for key, entry in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_plain(entry) for entry in value)
    return _short_time(str(value))


def _short_time(text: str) -> str:
    """`2026-01-02T03:04:05.678901Z` → `2026-01-02 03:04:05Z`; anything else stays."""
    if len(text) < 20 or text[10] != "T" or not text.endswith("Z") or text[4:8:3] != "--":
        return text
    return f"{text[:10]} {text[11:19]}Z"
