"""`docs/reference/settings.md`, from the descriptions, defaults and bounds in `api/settings.py`."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from api.settings import PREFIX, Settings

INTRODUCTION = f"""# Settings

Made by `make docs` from `api/settings.py`.

Every setting is an environment variable, or a line of a TOML file under the same name in small letters without
`{PREFIX}`. The file is `muster.toml` in the state folder, or what `{PREFIX}CONFIG` (`muster serve --config`) names. An
environment variable wins over the file; `muster serve --host`, `--port` and `--state-dir` win over both. An empty
variable counts as not set. A name that does not exist, or a value that is not possible, keeps the service from starting
with a line that says which.

```toml
port = 9000
run_retention_days = 30
```

| variable | default | meaning |
|---|---|---|
"""
MADE = {"state_dir": "`~/.local/state/muster`"}
"""Defaults that are made on the machine."""


def render() -> str:
    return INTRODUCTION + "".join(_row(name, setting) for name, setting in Settings.model_fields.items())


def _row(name: str, setting: FieldInfo) -> str:
    meaning = " ".join([str(setting.description), *_bounds(setting)])
    return f"| `{PREFIX}{name.upper()}` | {MADE.get(name) or _shown(setting.default)} | {meaning} |\n"


def _shown(default: Any) -> str:
    if default is None or isinstance(default, SecretStr):
        return "–"
    return f"`{default}`"


def _bounds(setting: FieldInfo) -> Iterator[str]:
    if get_origin(setting.annotation) is Literal:
        yield f"One of {', '.join(f'`{choice}`' for choice in get_args(setting.annotation))}."
    for bound in setting.metadata:
        match bound:
            case Ge(ge=least):
                yield f"At least {least}."
            case Le(le=most):
                yield f"At most {most}."
