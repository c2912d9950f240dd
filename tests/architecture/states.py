"""`docs/states.md` from the tables the code moves by. `python -m tests.architecture.states` writes it."""

from pathlib import Path

from cluster_groups.model.cluster import CLUSTER_TRANSITIONS
from kernel.states import Transitions, finals
from rayjobs.model.run import ATTEMPT_TRANSITIONS, RUN_TRANSITIONS

FILE = Path(__file__).parents[2] / "docs" / "states.md"

INTRODUCTION = """# States

Made from the tables in the code by `make docs`; a test compares. `kernel.states.move` refuses every other step.
"""
TABLES = {
    "Runs": ("rayjobs/model/run.py", RUN_TRANSITIONS),
    "Attempts": ("rayjobs/model/run.py", ATTEMPT_TRANSITIONS),
    "Clusters": ("cluster_groups/model/cluster.py", CLUSTER_TRANSITIONS),
}


def render() -> str:
    return "\n".join([INTRODUCTION, *(_section(title, *table) for title, table in TABLES.items())])


def _section(title: str, source: str, table: Transitions) -> str:  # type: ignore[type-arg] - of any kind of state
    first = next(iter(table))
    steps = [f"    {state} --> {following}" for state, targets in table.items() for following in sorted(targets)]
    ends = [f"    {state} --> [*]" for state in table if state in finals(table)]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}", *steps, *ends, "```"]
    return "\n".join([f"## {title}", "", f"`{source}`", "", *lines, ""])


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(render(), "utf-8")
