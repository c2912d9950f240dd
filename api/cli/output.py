"""Printing resources: for people as tables, for programs as the API's own bodies."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

import click

from api.cli.documents import to_json, to_yaml
from api.cli.tables import Column, Value, cell_text, cells, column, cut, lay_out
from api.client import Json

_COLOURS = {
    "SUCCEEDED": "green",
    "RUNNING": "green",
    "HEALTHY": "green",
    "FAILED": "red",
    "UNHEALTHY": "red",
    "QUEUE_TIMEOUT": "red",
    "WAITING": "yellow",
    "STARTING": "cyan",
    "STOPPING": "cyan",
}

_FREE = frozenset({"entrypoint", "detail", "advice", "params", "message", "description", "end", "labels"})
"""Fields of records inside a resource that hold text of any length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Printer:
    format: str
    colours: bool

    def page(self, page: Json, columns: Sequence[Column], key: str) -> None:
        """A list, or one page of it."""
        if self.format in {"json", "yaml"}:
            self._body(page)
            return
        self.rows(page["items"], columns, key)

    def rows(self, records: Iterable[Json], columns: Sequence[Column], key: str) -> None:
        if self.format == "jsonl":
            for record in records:
                click.echo(to_json(record, indent=None))
        elif self.format == "name":
            for record in records:
                click.echo(record[key])
        else:
            self._table(list(records), columns)

    def record(self, record: Json, columns: Sequence[Column], key: str) -> None:
        """One resource in short, as an answer to a change."""
        if self.format in {"json", "yaml"}:
            self._body(record)
            return
        self.rows([record], columns, key)

    def details(self, record: Json, key: str) -> None:
        """One resource with all its fields: the plain ones as pairs, lists of records as tables below."""
        if self.format not in {"table", "wide"}:
            self.record(record, (), key)
            return
        pairs = list(_pairs(record))
        if self.format == "table":
            pairs = [(name, text) for name, text in pairs if _says(text)]
        name_width = max((cells(name) for name, _ in pairs), default=0)
        for name, text in pairs:
            line = f"{name:{name_width}}  {text}"
            click.echo(line if self.width is None else cut(line, self.width))
        for name, value in record.items():
            if _is_table(value):
                click.echo(f"\n{name}")
                self._table(value, self._columns(value))

    @property
    def width(self) -> int | None:
        """Cells of a line, if anything is to be cut: never for a program, never with `-o wide`."""
        return get_terminal_size().columns if self.format != "wide" and sys.stdout.isatty() else None

    def _table(self, records: Sequence[Json], columns: Sequence[Column]) -> None:
        shown = [column for column in columns if self.format == "wide" or not column.is_extra]
        for line in lay_out(shown, records, self.width):
            click.echo(line, color=self.colours)

    def _columns(self, records: Sequence[Json]) -> list[Column]:
        """Of all fields; without `-o wide` those that say nothing of any record are left out, as in the pairs above."""
        names = dict.fromkeys(name for record in records for name in record)
        headers = sorted(names, key=lambda name: name != "name")
        told = [name for name in headers if self.format == "wide" or any(_says(record.get(name)) for record in records)]
        return [column(name.upper().replace("_", " "), name, is_free=name in _FREE) for name in told]

    def _body(self, body: Json) -> None:
        click.echo(to_json(body) if self.format == "json" else to_yaml(body).rstrip())


def state_column(header: str = "STATE", value: str | Value = "state") -> Column:
    return column(header, value, paint=lambda text: click.style(text, fg=_COLOURS.get(text.partition(",")[0])))


def _pairs(record: Json, prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in record.items():
        if _is_table(value):
            continue
        if isinstance(value, dict) and value:
            yield from _pairs(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", cell_text(value)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _says(value: object) -> bool:
    return cell_text(value) != "-"
