"""Pure: answers of Ray without the values of environment variables.

Ray masks them for browsers only, and before 2.59 for nobody; here nobody sees them, whichever Ray answers.
"""

import json
from typing import Any

HIDDEN = "<redacted>"
_NAMES = ("env_vars", "envVars")


def masked(body: bytes) -> bytes:
    """Raises ValueError when it cannot be read, and so not be masked."""
    if not _is_named(body.decode("utf-8", "replace")):
        return body
    try:
        return json.dumps(_masked(json.loads(body))).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _hidden(one) if name in _NAMES else _masked(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if isinstance(value, str) and _is_named(value):
        return _masked_text(value)
    return value


def _masked_text(text: str) -> str:
    """Ray also sends runtime environments as JSON in a string."""
    try:
        inner = json.loads(text)
    except ValueError:
        return HIDDEN
    return HIDDEN if isinstance(inner, str) else json.dumps(_masked(inner))


def _hidden(variables: Any) -> Any:
    return dict.fromkeys(variables, HIDDEN) if isinstance(variables, dict) else HIDDEN


def _is_named(text: str) -> bool:
    return any(name in text for name in _NAMES)
