"""From the text of an advanced parameter to its value: one maker of readers for each kind of value."""

import json
import re
from collections.abc import Callable
from typing import Any

from kernel.labels import is_label_key, is_label_value

Reader = Callable[[str], Any]
"""Raises `Refused`."""

_RESOURCE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_RAYS_OWN_RESOURCES = frozenset({"cpu", "gpu", "memory", "object_store_memory"})
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([A-Za-z0-9.-]{{1,253}}/)?{_LABEL}")
_SELECTOR = re.compile(rf"!?({_LABEL}|in\({_LABEL}(, ?{_LABEL})*\))")
_PATH = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")
_OUR_LABELS = "muster.io/"


class Refused(ValueError):
    """A value its key cannot take; carries the code and params of the problem."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(code)
        self.code = code
        self.params = params


def _no(code: str, **params: Any) -> Refused:
    return Refused(code, **params)


def amount(maximum: int, *, whole_above_one: bool = False) -> Reader:
    """Ray counts in steps of 0.0001, and accelerators beyond the first only whole."""

    def read(text: str) -> float:
        value = float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,4})?", text) else -1.0
        if not 0 <= value <= maximum:
            raise _no("ADVANCED_PARAM_NOT_AMOUNT", maximum=maximum)
        if whole_above_one and value > 1 and not value.is_integer():
            raise _no("ADVANCED_PARAM_NOT_WHOLE")
        return value

    return read


def integer(minimum: int, maximum: int) -> Reader:
    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1
        if not minimum <= value <= maximum:
            raise _no("ADVANCED_PARAM_NOT_INTEGER", minimum=minimum, maximum=maximum)
        return value

    return read


def number(minimum: float, maximum: float) -> Reader:
    def read(text: str) -> float:
        value = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else -1.0
        if not minimum <= value <= maximum:
            raise _no("ADVANCED_PARAM_NOT_NUMBER", minimum=minimum, maximum=maximum)
        return value

    return read


def choice(**meanings: Any) -> Reader:
    def read(text: str) -> Any:
        if text.lower() not in meanings:
            raise _no("ADVANCED_PARAM_NOT_A_CHOICE", allowed=list(meanings))
        return meanings[text.lower()]

    return read


def resources(text: str) -> dict[str, float]:
    """Ray's own have parameters of their own."""
    return _members(text, "ADVANCED_PARAM_BAD_RESOURCES", _is_custom)


def selector(text: str) -> dict[str, str]:
    return _members(text, "ADVANCED_PARAM_BAD_LABELS", _is_selector)


def labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    fine = all(
        equals and is_label_key(key) and not key.startswith(_OUR_LABELS) and value and is_label_value(value)
        for key, equals, value in pairs
    )
    read = {key: value for key, _, value in pairs}
    if not fine or len(read) < len(pairs):
        raise _no("ADVANCED_PARAM_BAD_NODE_LABELS")
    return read


def folder(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise _no("ADVANCED_PARAM_NOT_A_FOLDER")
    return text


def _members(text: str, code: str, is_fine: Callable[[str, object], bool]) -> dict[str, Any]:
    try:
        members = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _no(code) from error
    if not isinstance(members, dict) or not all(is_fine(name, value) for name, value in members.items()):
        raise _no(code)
    return members


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON takes the last value of a name that is there twice, and ignores the others."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name twice")
    return members


def _is_custom(name: str, wanted: object) -> bool:
    if not _RESOURCE_NAME.fullmatch(name) or name.lower() in _RAYS_OWN_RESOURCES:
        return False
    if not isinstance(wanted, int | float) or isinstance(wanted, bool):
        return False
    return 0 < wanted <= 1e6 and round(wanted, 4) == wanted


def _is_selector(label: str, condition: object) -> bool:
    """A value, or Ray's `!x`, `in(x,y)`, `!in(x,y)`; it answers the submission with 500 for anything else."""
    fine = isinstance(condition, str) and (not condition or _SELECTOR.fullmatch(condition))
    return bool(fine) and _LABEL_KEY.fullmatch(label) is not None
