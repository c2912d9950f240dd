"""Files, functions and nesting stay small enough to be read at once (style.md §1.12). There are no waivers."""

import ast
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.source import ROOT, files_of_tests, functions, product_files

MAX_LINES = 400
MAX_TEST_LINES = 500
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 6
MAX_NESTING = 3

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def test_files_are_short() -> None:
    limits = [*((path, MAX_LINES) for path in product_files()), *((path, MAX_TEST_LINES) for path in files_of_tests())]
    sizes = [(path, len(path.read_text("utf-8").splitlines()), limit) for path, limit in limits]
    assert not [f"{_name(path)}: {size} lines" for path, size, limit in sizes if size > limit]


def test_functions_are_short() -> None:
    found = [
        f"{_name(path)}:{function.lineno} {function.name}: {lines} lines"
        for path in product_files()
        for function in functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not found


def test_functions_take_few_parameters() -> None:
    found = [
        f"{_name(path)}:{function.lineno} {function.name}: {count} parameters"
        for path in product_files()
        for function in functions(path)
        if (count := _parameters(function)) > MAX_PARAMETERS and not _is_handler(function)
    ]
    assert not found


def test_blocks_are_not_nested_deeply() -> None:
    found = [
        f"{_name(path)}:{function.lineno} {function.name}: {depth} levels"
        for path in product_files()
        for function in functions(path)
        if (depth := _depth(function.body)) > MAX_NESTING
    ]
    assert not found


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """What a caller gives: `self` and `cls` come by themselves."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def _is_handler(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Of a route or a command: its parameters are those of the request, and nobody calls it by hand."""
    return any(isinstance(decorator, ast.Call) for decorator in function.decorator_list)


def _depth(body: Iterable[ast.stmt]) -> int:
    """An `elif` is no deeper than its `if`; functions inside count for themselves."""
    return max((_depth_of(statement) for statement in body), default=0)


def _depth_of(statement: ast.stmt) -> int:
    if not isinstance(statement, BLOCKS):
        return 0
    parts = [getattr(statement, name, []) for name in ("body", "finalbody")]
    parts += [part.body for name in ("handlers", "cases") for part in getattr(statement, name, [])]
    orelse = getattr(statement, "orelse", [])
    is_elif = isinstance(statement, ast.If) and len(orelse) == 1 and isinstance(orelse[0], ast.If)
    deepest = max(1 + _depth(part) for part in [*parts, [] if is_elif else orelse])
    return max(deepest, _depth(orelse)) if is_elif else deepest
