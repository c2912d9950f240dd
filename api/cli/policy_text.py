"""A policy as text that people edit: YAML with what the API says of each field, differences, and two edits in one."""

import textwrap
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from api.cli.documents import to_yaml
from api.cli.tables import cell_text
from api.client import Json

FIELDS = ("timezone", "members", "policy")
"""What an edit is about; its comment is about the edit."""

_WIDTH = 100
_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def content_of(body: Json) -> Json:
    return {name: body[name] for name in FIELDS if name in body}


def annotated(body: Json, description: Json) -> str:
    """The body as YAML, each field below what `description`, the API's own, says of it."""
    schemas = description.get("components", {}).get("schemas", {})
    documented = schemas.get("PolicyPut", {}).get("properties", {})
    parts = []
    for name, value in body.items():
        lines = _help(name, documented[name], schemas, depth=0) if name in documented else ()
        parts.append("".join(f"# {line}\n" for line in lines) + to_yaml({name: value}))
    return "\n".join(parts)


def for_people(body: Json) -> Json:
    """With each window of a member in a few words."""
    members = [{**one, "windows": _in_words(one.get("windows"))} for one in body["members"]]
    return {**body, "members": members}


def change_text(change: Json) -> str:
    before, after = (cell_text(_in_words(change[name])) for name in ("before", "after"))
    return f"{change['field']} {before} → {after}"


def difference(before: Json, after: Json, names: tuple[str, str]) -> list[str]:
    """A unified diff of what both say; empty when that is the same."""
    old, new = (to_yaml(content_of(body)).splitlines() for body in (before, after))
    return list(unified_diff(old, new, *names, lineterm=""))


def is_only_preset(before: Json, after: Json) -> bool:
    """A preset was changed that fills nothing, since all else is given."""
    old, new = before.get("policy", {}), after.get("policy", {})
    return old.get("preset") != new.get("preset") and {**old, "preset": None} == {**new, "preset": None}


def merged(base: Json, mine: Json, theirs: Json) -> Json:
    """`theirs` with what `mine` changed of `base`; where both changed the same, mine."""
    if "members" not in base:
        return _merged(base, mine, theirs)
    found = _merged(*({**body, "members": _by_cluster(body.get("members", ()))} for body in (base, mine, theirs)))
    return {**found, "members": list(found["members"].values())}


def _in_words(value: Any) -> Any:
    """Windows and lists of them; anything else is as it is."""
    if isinstance(value, list):
        return [_in_words(one) for one in value]
    is_window = isinstance(value, dict) and value.keys() >= {"start", "end"}
    return _window(value) if is_window else value


def _window(window: Json) -> str:
    days = window.get("days") or []
    until = window.get("date_to") or ""
    dates = f"{window.get('date_from') or ''}..{until}" if window.get("date_from") or until else None
    which = None if len(days) == len(_WEEK) else "+".join(_WEEK[day - 1] for day in days)
    effect = window.get("effect") if window.get("effect") != "open" else None
    return " ".join(filter(None, (effect, which, f"{window['start']}-{window['end']}", window.get("timezone"), dates)))


def _merged(base: Json, mine: Json, theirs: Json) -> Json:
    found: Json = {}
    for name in dict.fromkeys([*mine, *theirs]):
        old, my, their = (body.get(name) for body in (base, mine, theirs))
        if all(isinstance(one, dict) for one in (old, my, their)):
            found[name] = _merged(old, my, their)  # type: ignore[arg-type]  # objects all three
        elif my == old:
            found |= {name: their} if name in theirs else {}
        else:
            found |= {name: my} if name in mine else {}
    return found


def _by_cluster(members: Any) -> Json:
    return {member.get("cluster", ""): member for member in members}


def _help(name: str, field: Json, schemas: Json, depth: int) -> Iterator[str]:
    """One paragraph for the field, and below it those of the fields inside."""
    kind, inner = _kind(field, schemas)
    default = f", {_plain(field['default'])} unless given" if "default" in field else ""
    said = " ".join((field.get("description") or inner.get("description") or "").split())
    indent = "  " * depth
    text = f"{name} ({kind}{default}){': ' if said else ''}{said}"
    yield from textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")
    for below, one in inner.get("properties", {}).items():
        yield from _help(below, one, schemas, depth + 1)


def _kind(field: Json, schemas: Json) -> tuple[str, Json]:
    """In a word, and the schema of the object, or of each item of the list, that it is."""
    options = [_resolved(one, schemas) for one in field.get("anyOf", [field])]
    kinds = [one for one in options if one.get("type") != "null"]
    one = kinds[0] if kinds else {}
    choices = [value for value in (field.get("enum") or one.get("enum") or ()) if value is not None]
    or_null = " or null" if len(options) > len(kinds) else ""
    if choices:
        return f"{' | '.join(map(_plain, choices))}{or_null}", one
    if one.get("type") == "array":
        item, inner = _kind(one.get("items", {}), schemas)
        return f"list of {item}{or_null}", inner
    return f"{_range(one)}{or_null}", one


def _resolved(field: Json, schemas: Json) -> Json:
    ref = field.get("$ref")
    return schemas.get(ref.rpartition("/")[2], {}) if ref else field


def _range(one: Json) -> str:
    kind = one.get("format") or one.get("type") or "value"
    if "minimum" in one and "maximum" in one:
        return f"{kind} {one['minimum']} to {one['maximum']}"
    return f"{kind} from {one['minimum']}" if "minimum" in one else str(kind)


def _plain(value: object) -> str:
    if isinstance(value, Mapping | list) or value is None or isinstance(value, bool):
        return to_yaml(value).partition("\n")[0] if not isinstance(value, list) else str(value)
    return str(value) if value != "" else '""'
