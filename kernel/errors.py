"""The error tree. A class fixes the HTTP status, an instance carries a stable code and its params.

MusterError
├── InvalidInput          422   what was sent can never be done; points at the field
│   └── Malformed         400   not even readable (not JSON, bad path, bad id)
├── Unauthenticated       401
├── Denied                403
├── NotFound              404
├── Conflict              409   not in this state
├── StaleRevision         412
├── TooLarge              413
├── WrongMediaType        415
├── RevisionRequired      428
├── TooManyRequests       429
└── Unavailable           503   a part Muster stands on does not answer

Texts for people are made at the edge (`api/texts`) from code and params, in English and Chinese.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar


class MusterError(Exception):
    """Root of all errors Muster raises on purpose."""

    status: ClassVar[int] = 500

    def __init__(self, code: str, *, pointer: str | None = None, **params: Any) -> None:
        super().__init__(code, params)
        self.code = code
        self.pointer = pointer
        self.params = params

    def __str__(self) -> str:
        details = " ".join(f"{key}={value!r}" for key, value in self.params.items())
        return " ".join(filter(None, [self.code, self.pointer, details]))


class InvalidInput(MusterError):
    status = 422


class Malformed(InvalidInput):
    status = 400


class Unauthenticated(MusterError):
    status = 401


class Denied(MusterError):
    status = 403


class NotFound(MusterError):
    status = 404


class Conflict(MusterError):
    status = 409


class StaleRevision(MusterError):
    status = 412


class TooLarge(MusterError):
    status = 413


class WrongMediaType(MusterError):
    status = 415


class RevisionRequired(MusterError):
    status = 428


class TooManyRequests(MusterError):
    status = 429


class Unavailable(MusterError):
    status = 503


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One finding of a validation: an error when raised by `raise_problems`, a warning beside a result."""

    code: str
    pointer: str | None = None
    params: dict[str, Any] = field(default_factory=dict)


def problem(code: str, pointer: str | None = None, **params: Any) -> Problem:
    return Problem(code=code, pointer=pointer, params=params)


def pointer_to(*parts: str | int) -> str:
    """A JSON pointer (RFC 6901): `pointer_to("tags", "a/b")` is `/tags/a~1b`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


class ValidationFailed(InvalidInput):
    """Several problems at once; the single code on top is `VALIDATION_FAILED` (api.md §13)."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("VALIDATION_FAILED", count=len(problems))
        self.problems = problems


def raise_problems(problems: Iterable[Problem]) -> None:
    """Raise nothing, the one problem as itself, or all of them together."""
    found = list(problems)
    if not found:
        return
    if len(found) == 1:
        only = found[0]
        raise InvalidInput(only.code, pointer=only.pointer, **only.params)
    raise ValidationFailed(found)
