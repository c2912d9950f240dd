"""`docs/reference/states.md`, from the tables the code moves by and the words beside their states."""

import ast
import inspect
from enum import StrEnum
from itertools import pairwise
from typing import Any

from cluster_groups.model.cluster import CLUSTER_TRANSITIONS
from kernel.states import Transitions, finals
from rayjobs.model.run import ATTEMPT_TRANSITIONS, RUN_TRANSITIONS

INTRODUCTION = """# States

Made by `make docs` from the tables in the code, which refuses every step that is not here.
"""
TABLES: dict[str, tuple[str, Transitions[Any]]] = {
    "Runs": ("rayjobs/model/run.py", RUN_TRANSITIONS),
    "Attempts": ("rayjobs/model/run.py", ATTEMPT_TRANSITIONS),
    "Clusters": ("cluster_groups/model/cluster.py", CLUSTER_TRANSITIONS),
}


def render() -> str:
    return "\n".join([INTRODUCTION, *(_section(title, *table) for title, table in TABLES.items())])


def _section(title: str, source: str, table: Transitions[Any]) -> str:
    first = next(iter(table))
    steps = [f"    {state} --> {following}" for state, targets in table.items() for following in sorted(targets)]
    ends = [f"    {state} --> [*]" for state in table if state in finals(table)]
    diagram = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *steps, *ends, "```"]
    words = [f"- `{state}`: {text}" for state, text in _words(type(first)).items()]
    return "\n".join([f"## {title}", "", f"`{source}`", "", *diagram, "", *words, ""])


def _words(states: type[StrEnum]) -> dict[str, str]:
    """What stands below a member in the source."""
    (definition,) = ast.parse(inspect.getsource(states)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(member.targets[0]): " ".join(str(text.value.value).split())
        for member, text in pairwise(definition.body)
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
