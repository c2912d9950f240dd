"""The source as trees, for the rules that read it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("kernel", "runtime_envs", "cluster_groups", "rayjobs", "api")
DRAFTED = ROOT / "api" / "migrations" / "versions"
"""Written by Alembic, one statement a column."""


def product_files() -> list[Path]:
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return [path for path in files if DRAFTED not in path.parents]


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
