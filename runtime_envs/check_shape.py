"""Small steps of checking JSON: types, keys, pointers."""

from collections.abc import Callable
from typing import Any, TypeGuard

from kernel.errors import Problem, pointer_to, problem


def at(pointer: str, token: str | int) -> str:
    """One step down a JSON pointer."""
    return pointer + pointer_to(token)


def wrong_type(pointer: str, expected: str) -> Problem:
    return problem("INVALID_TYPE", pointer, expected=expected)


def is_text(value: Any) -> TypeGuard[str]:
    """A string every database takes: JSON may hold halves of a surrogate pair, and NUL, which PostgreSQL refuses."""
    return isinstance(value, str) and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value)


def check_keys(value: dict[str, Any], known: set[str], pointer: str) -> list[Problem]:
    return [problem("RUNTIME_ENV_KEY_UNKNOWN", at(pointer, key), key=key) for key in value if key not in known]


def check_texts(
    value: Any, pointer: str, check: Callable[[str, str], list[Problem]] = lambda _text, _pointer: []
) -> list[Problem]:
    if not isinstance(value, list):
        return [wrong_type(pointer, "list[str]")]
    found = []
    for index, text in enumerate(value):
        here = at(pointer, index)
        found += check(text, here) if is_text(text) else [wrong_type(here, "str")]
    return found
