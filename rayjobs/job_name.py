"""Names of jobs: free text for people that still fits into a path and can be told from an id (R40, api.md §1)."""

import unicodedata

from kernel.errors import Problem, problem
from kernel.ids import looks_like_id

MAX_LENGTH = 100
RESERVED = frozenset({"name-check", "new", ".", ".."})
"""What stands behind `/jobs/` in paths of the API and the console, and what clients resolve away."""

_CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_name(name: str) -> Problem | None:
    """The first rule the name breaks."""
    pointer = "/name"
    if not name.strip():
        return problem("NAME_REQUIRED", pointer)
    if len(name) > MAX_LENGTH:
        return problem("NAME_TOO_LONG", pointer, length=len(name), maximum=MAX_LENGTH)
    if name != name.strip():
        return problem("NAME_HAS_BLANKS", pointer)
    if "/" in name or has_control(name):
        return problem("NAME_INVALID", pointer)
    if looks_like_id(name):
        return problem("NAME_LOOKS_LIKE_ID", pointer, name=name)
    if name.lower() in RESERVED:
        return problem("NAME_RESERVED", pointer, name=name)
    return None


def has_control(text: str, allowed: str = "") -> bool:
    """Characters that steer instead of showing: C0 and C1, line separators, lone surrogates, direction controls."""
    return any(
        char not in allowed and (char in _BIDI_CONTROL or unicodedata.category(char) in _CONTROL) for char in text
    )


def copy_name(name: str, number: int) -> str:
    """The `number`-th name to try for a copy: `<name>-copy`, `<name>-copy-2`, …, the old part cut so that it fits."""
    suffix = "-copy" if number == 1 else f"-copy-{number}"
    return name[: MAX_LENGTH - len(suffix)] + suffix
