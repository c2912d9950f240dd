"""Records as CSV: a column for each of their values, named by its path."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MEDIA_TYPE = "text/csv"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula; one that somebody wrote into a name must not be run."""


def to_csv(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """`columns` come first and are there also without records; the others follow as the records have them."""
    rows = [dict(_values(record)) for record in records]
    names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow([_cell(name) for name in names])
    table.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _values(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
