"""Names of jobs: free text for people that still fits into a path and can be told from an id (R40, api.md §1)."""

from kernel.errors import Problem, problem
from kernel.ids import looks_like_id
from kernel.text import has_control

MAX_LENGTH = 100
RESERVED = frozenset({"name-check", "new", ".", ".."})
"""What stands behind `/jobs/` in paths of the API and the console, and what clients resolve away."""


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


def copy_name(name: str, number: int) -> str:
    """The `number`-th name to try for a copy: `<name>-copy`, `<name>-copy-2`, …, the old part cut so that it fits."""
    suffix = "-copy" if number == 1 else f"-copy-{number}"
    return name[: MAX_LENGTH - len(suffix)] + suffix
