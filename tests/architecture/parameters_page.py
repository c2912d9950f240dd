"""`docs/reference/advanced-parameters.md`, from the catalogue of advanced parameters."""

from collections.abc import Mapping

from runtime_envs.advanced.catalogue import CATALOGUE, SHORT, Scope

INTRODUCTION = """# Advanced parameters

Made by `make docs` from `runtime_envs/advanced/catalogue.py`.

Keys and values of `advanced_parameters`; all values are strings. What is not listed here is refused: a protected key
with the form item to use (`ADVANCED_PARAM_PROTECTED`), any other with the nearest names (`ADVANCED_PARAM_UNKNOWN`).

| of | may be set on |
|---|---|
| nodes, Ray's configuration, autoscaler | a managed cluster before it starts, an `on_demand` job, for its own |
| a job | every job |

On the backend `local`, clusters neither grow and shrink nor have volumes of their nodes: the keys of the autoscaler and
`object-spilling-directory` are refused there (`ADVANCED_PARAM_NOT_ON_BACKEND`).
"""
HEADINGS: Mapping[Scope, str] = {
    Scope.NODE: "Nodes: options of `ray start`, the same on head and workers",
    Scope.SYSTEM: "Ray's own configuration: given to the head, followed by all nodes",
    Scope.AUTOSCALER: "Autoscaler",
    Scope.JOB: "Jobs: what is sent to Ray with each run",
}


def render() -> str:
    return INTRODUCTION + "".join(map(_section, HEADINGS))


def _section(scope: Scope) -> str:
    others = {long: short for short, long in SHORT.items()}
    rows = (
        f"| `{key}`{f', `{others[key]}`' if key in others else ''} | {one.takes} |\n"
        for key, one in CATALOGUE.items()
        if one.scope is scope
    )
    return f"\n## {HEADINGS[scope]}\n\n| key | value |\n|---|---|\n{''.join(rows)}"
