"""`docs/reference/errors.md`: every code with its words in both languages, and as what people meet it."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import kernel.errors
from api.errors import MethodNotAllowed
from api.texts import Language, catalogue
from kernel.errors import MusterError, ValidationFailed
from rayjobs.model.run import EndCode
from tests.architecture.source import called_name, constant, product_files, tree_of

INTRODUCTION = """# Codes

Made by `make docs` from `api/texts` and the code. Codes never change; their words may. `{…}` is filled with the
`params` that come with the code. **As** says how a code is met:

- a number: an answer of the API with this HTTP status, or one of the `errors` in such an answer; the command line says
  some of them by itself, when the service cannot start;
- *warning*: in `warnings` beside a result;
- *reason*: what a run waits for, why a member of a group was passed over, why a cluster is in its state or not healthy;
- *end*: why a run is over, in its `end`;
- *words*: part of a message of the Ray Jobs endpoint.

The endpoint below `/ray` answers 400 where the API answers 422 or 403: Ray's client knows no 422, and of a 403 it makes
advice about tokens.

The command line has a few codes of its own, such as `USAGE` and `SERVER_UNREACHABLE`; its exit codes are in
[cli.md](cli.md#exit-codes).

| code | as | English | 中文 |
|---|---|---|---|
"""
_STATUSES = {
    kind.__name__: str(kind.status)
    for kind in [*vars(kernel.errors).values(), MethodNotAllowed]
    if isinstance(kind, type) and issubclass(kind, MusterError)
}
_BEGINNING = re.compile(r"[A-Z]+_")
"""Of a code made with a member of an enum, as in f"HEALTH_{status}"."""
_REFUSED = _STATUSES["InvalidInput"]
_CARRIERS = {**_STATUSES, "problem": _REFUSED, "_Refused": _REFUSED, "Reason": "reason", "_LookFailed": "reason"}


def render() -> str:
    met = _met_as()
    english, chinese = catalogue(Language.EN), catalogue(Language.ZH)
    return INTRODUCTION + "".join(
        f"| `{code}` | {met[code]} | {_words(english[code], '.')} | {_words(chinese[code], '。')} |\n"
        for code in sorted(english)
    )


def _words(texts: Mapping[str, str], stop: str) -> str:
    return f"**{_plain(texts['title'])}{stop}** {_plain(texts.get('advice', ''))}".strip()


def _plain(text: str) -> str:
    """A template as people read it, with nothing in it that Markdown takes for its own."""
    text = text.replace("{{", "{").replace("}}", "}")
    return re.sub(r"[*<|]|(?<!\w)_+|_+(?!\w)", lambda sign: f"\\{sign[0]}", text)


def _met_as() -> Mapping[str, str]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in product_files():
        for code, kind in _sites(path):
            found[code].add(kind)
    for code in EndCode:
        found[code].add("end")
    found[ValidationFailed([]).code].add(_REFUSED)
    return defaultdict(lambda: "words", {code: ", ".join(sorted(kinds)) for code, kinds in found.items()})


def _sites(path: Path) -> Iterator[tuple[str, str]]:
    """Codes and what carries them. Given a variable, it may carry any code of its file that none is given outright."""
    tree = tree_of(path)
    carried = list(_carried(tree, warns=False))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    begun = tuple(text for text in texts if _BEGINNING.fullmatch(text))
    loose = {code for code in catalogue(Language.EN) if code in texts or code.startswith(begun)}
    loose -= {code for code, _ in carried}
    for code, kind in carried:
        yield from ((one, kind) for one in ([code] if code else loose))


def _carried(node: ast.AST, *, warns: bool) -> Iterator[tuple[str | None, str]]:
    """The carriers below `node`, each with its code; None where that is a variable."""
    warns = warns or _warns(node)
    if isinstance(node, ast.Call) and (kind := _CARRIERS.get(called_name(node))):
        given = [keyword.value for keyword in node.keywords if keyword.arg == "code"] + node.args[:1]
        code = constant(given[0]) if given else None
        yield (code if isinstance(code, str) else None), "warning" if warns else kind
    for below in ast.iter_child_nodes(node):
        yield from _carried(below, warns=warns)


def _warns(node: ast.AST) -> bool:
    """A function named for warnings, or a statement that adds to them."""
    if isinstance(node, ast.FunctionDef):
        return node.name.startswith("warnings")
    return isinstance(node, ast.Expr | ast.AugAssign) and ".warnings" in ast.unparse(node)
