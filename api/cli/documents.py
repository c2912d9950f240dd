"""Reading and writing the bodies people write by hand, as YAML or JSON.

YAML is read by the core rules of its version 1.2: in 1.1, which PyYAML follows, `on:` is a boolean, `22:00` a number
and `2026-01-02` a date, and all three are words of our API. What begins with zeros, people mean as text.
"""

import json
import re
import tempfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TextIO

import click
import yaml

from api.client import Json


def read_document(source: TextIO) -> Json:
    """Raises a usage error that names the place."""
    try:
        return parse_document(source.read(), source.name)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{source.name} is not UTF-8 text") from error


def parse_document(text: str, name: str) -> Json:
    try:
        document = parse_value(text)
    except yaml.YAMLError as error:
        raise click.UsageError(f"{name} is neither JSON nor YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise click.UsageError(f"{name} must hold one object with fields")
    return document


def parse_value(text: str) -> Any:
    """JSON, or else YAML. Raises `yaml.YAMLError`, or a usage error for a key that is given twice."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except ValueError:
        return yaml.load(text, _Loader)  # noqa: S506  a SafeLoader with fewer types


def to_yaml(body: object) -> str:
    return yaml.dump(body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)


def to_json(body: object, *, indent: int | None = 2) -> str:
    return json.dumps(body, ensure_ascii=False, indent=indent)


def edit_document(body: Json, heading: str, to_text: Callable[[Json], str] = to_yaml) -> Json | None:
    """Open the body in the user's editor; None when it was left as it is."""
    text = click.edit("".join(f"# {line}\n" for line in heading.splitlines()) + to_text(body), extension=".yaml")
    if text is None:
        return None
    try:
        return parse_document(text, "the edited text")
    except click.UsageError as error:
        raise click.UsageError(f"{error.message} (kept in {keep_text(text)})") from error


def keep_text(text: str) -> Path:
    """An edit that was refused must not be lost."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="muster-", suffix=".yaml", delete=False) as file:
        file.write(text)
    return Path(file.name)


def _no_number(text: str) -> Any:
    """`NaN` and `Infinity` are Python's JSON alone."""
    raise ValueError(text)


def _object(pairs: list[tuple[str, Any]]) -> Json:
    """Of a key that is there twice nobody can say which was meant."""
    found: Json = {}
    for key, value in pairs:
        if key in found:
            raise click.UsageError(f"the key {key} stands twice in the same object")
        found[key] = value
    return found


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own way

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        _object([(key.value, None) for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    def represent_text(self, text: str) -> yaml.Node:
        style = "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def represent_items(self, items: list[Any]) -> yaml.Node:
        """Of numbers a whole list is read at one glance."""
        is_short = bool(items) and all(isinstance(one, int | float) for one in items)
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short or None)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)

for _tag, _pattern, _first in (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    for _kind in (_Loader, _Dumper):  # text that would be read as something else is written in quotes
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)
