"""From options to the body of a request: which option fills which field is data, not code."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from api.cli.documents import parse_value
from api.client import Json


class Pair(click.ParamType[tuple[str, str]]):
    """`key=value`, the value taken as text."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key, text


class Tag(click.ParamType[str]):
    """A tag to look for, written as everywhere here; what the API's own filter takes, `key:value`, is taken too."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = re.fullmatch(r"([^=:]+)[=:](.*)", str(value), re.DOTALL)
        if not found:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return ":".join(found.groups())


class Assignment(click.ParamType[tuple[str, Any]]):
    """`path.to.field=value`, the value read as YAML or JSON."""

    name = "field=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        path, text = Pair().convert(value, param, ctx)
        return path, _scalar(text)


class Record(click.ParamType[Json]):
    """`cpu=2,memory_gib=4`: one object of plain fields."""

    name = "key=value,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Json:
        pairs = [Pair().convert(part.strip(), param, ctx) for part in str(value).split(",")]
        return {key: _scalar(text) for key, text in pairs}


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """An option and the field it fills. Many pairs become one object, many of anything else a list."""

    flag: str
    path: str
    kind: Any
    is_many: bool
    help: str

    @property
    def parameter(self) -> str:
        return "field_" + self.flag.lstrip("-").replace("-", "_")


def field(flag: str, path: str, help: str, *, kind: Any = str, is_many: bool = False) -> Field:  # noqa: A002  click's word
    return Field(flag=flag, path=path, kind=kind, is_many=is_many, help=help)


SET = field("--set", "", "Any other field, its value read as YAML.", kind=Assignment(), is_many=True)


WORKER = field(
    "--worker",
    "worker_groups",
    "A worker group: name=w1,cpu=2,memory_gib=4,min_instances=1,max_instances=2.",
    kind=Record(),
    is_many=True,
)

MOUNT_FORM = "volume=data,mount_path=/mnt/muster/data,sub_path=a/b,read_only=true"


def field_options(fields: Sequence[Field]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for entry in reversed([*fields, SET]):
            option = click.option(
                entry.flag, entry.parameter, type=entry.kind, multiple=entry.is_many, default=None, help=entry.help
            )
            command = option(command)
        return command

    return decorate


def fill(body: Json, fields: Sequence[Field], values: Mapping[str, Any]) -> None:
    """Put what was given on the command line over what stands in the body."""
    for entry in fields:
        value = values[entry.parameter]
        if not _is_given(value):
            continue
        if isinstance(entry.kind, Pair):
            for key, text in value:
                _put(body, [*entry.path.split("."), key], text)
        else:
            _put(body, entry.path.split("."), list(value) if entry.is_many else value)
    for path, value in values[SET.parameter] or ():
        _put(body, path.split("."), value)


def any_given(values: Mapping[str, Any]) -> bool:
    return any(_is_given(value) for value in values.values())


def _is_given(value: object) -> bool:
    return value is not None and value != ()


def _put(body: Json, path: Sequence[str], value: Any) -> None:
    *parents, last = path
    for name in parents:
        if not isinstance(body.get(name), dict):
            body[name] = {}
        body = body[name]
    body[last] = value


def _scalar(text: str) -> Any:
    try:
        return parse_value(text)
    except click.UsageError:
        raise
    except Exception:  # noqa: BLE001  what is no YAML is the text itself
        return text
