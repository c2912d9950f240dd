"""Every code people may see has words in both languages, and every placeholder in them has its value."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from api.cli.main import main
from api.cli.texts import LANGUAGES
from api.texts import Language, catalogue, placeholders
from rayjobs.model.run import EndCode
from tests.architecture.source import ROOT, called_name, constant, product_files, tree_of

CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
CARRIER = re.compile(r"_*[A-Z]\w*[a-z]\w*|problem")
"""What takes a code: the classes of errors, reasons and ends, and `problem()`."""
COMMAND = re.compile(r"\bmuster((?: [a-z][a-z-]*)+)")
NOT_OURS = ("api/cli", "api/client", "rayjobs/runner")
"""They speak for themselves: the command line in its own texts, the runner to Muster."""
EN, ZH = catalogue(Language.EN), catalogue(Language.ZH)


@dataclass(frozen=True, slots=True)
class Site:
    """One place that makes a code; `params` is None where they cannot be read off."""

    place: str
    code: str
    params: frozenset[str] | None


def sites() -> Iterator[Site]:
    for path in product_files():
        place = str(path.relative_to(ROOT))
        if not place.startswith(NOT_OURS):
            yield from _sites_in(path, place)


def _sites_in(path: Path, place: str) -> Iterator[Site]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and CARRIER.fullmatch(called_name(node)):
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            code = constant(keywords.get("code") or (node.args[0] if node.args else None))
            if isinstance(code, str) and CODE.fullmatch(code):
                yield Site(f"{place}:{node.lineno}", code, _params(node, keywords))


def _params(call: ast.Call, keywords: dict[str | None, ast.expr]) -> frozenset[str] | None:
    if None in keywords or called_name(call).startswith(("_", "Pydantic")):  # **more, or more is added on the way
        return None
    given = keywords.get("params")
    if given is None:
        return frozenset(name for name in keywords if name)
    if not isinstance(given, ast.Dict) or None in given.keys:
        return None
    return frozenset(str(constant(key)) for key in given.keys)


SITES = list(sites())


def test_every_code_in_the_source_has_words() -> None:
    assert len(SITES) > 100
    without = sorted({f"{site.code} ({site.place})" for site in SITES if site.code not in EN})
    assert not without


def test_every_end_has_words() -> None:
    assert set(EndCode) <= EN.keys()


@pytest.mark.parametrize("words", [EN, ZH])
def test_who_waits_finds_the_queue(words: Mapping[str, Mapping[str, str]]) -> None:
    """The reader has just asked `muster run why`."""
    in_clusters = {"muster cluster queue", "muster group queue"}
    queues = {
        "QUEUED_BEHIND": in_clusters | {"muster quota group queue"},
        "HEAD_BUSY": in_clusters,
        "GANG_PARTIAL": in_clusters,
    }
    for code, commands in queues.items():
        advice = words[code]["advice"]
        assert [one for one in commands if one not in advice] == []
        assert "muster run why" not in advice


def test_no_words_for_codes_nobody_makes() -> None:
    constants = {
        node.value
        for path in product_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    made = {code for code in EN if code in constants or _is_composed(code, constants)}
    assert not EN.keys() - made


def _is_composed(code: str, constants: set[str]) -> bool:
    """Made from a prefix and a member of an enum, as in f"HEALTH_{status}"."""
    parts = code.split("_")
    return any("_".join(parts[:end]) + "_" in constants for end in range(1, len(parts)))


def test_both_languages_have_the_same_codes() -> None:
    assert EN.keys() == ZH.keys()


@pytest.mark.parametrize("code", sorted(EN))
def test_words_are_complete(code: str) -> None:
    english, chinese = EN[code], ZH[code]
    assert english.keys() == chinese.keys()
    assert {"title", "detail"} <= english.keys() <= {"title", "detail", "advice"}
    for part, text in english.items():
        assert placeholders(text) == placeholders(chinese[part]), part
    assert re.search(r"[\u4e00-\u9fff]", chinese["detail"]) or not re.sub(r"{\w+}|\W", "", chinese["detail"])


@pytest.mark.parametrize("words", [*EN.values(), *ZH.values(), *LANGUAGES.values()], ids=lambda _words: "")
def test_commands_in_words_exist(words: Mapping[str, str]) -> None:
    for text in words.values():
        for phrase in COMMAND.findall(text):
            command: click.Command | None = main
            parts = iter(phrase.split())
            while isinstance(command, click.Group):
                command = command.get_command(click.Context(command), next(parts, ""))
            assert command, f"there is no muster {phrase} ({text})"


def test_every_placeholder_has_a_value() -> None:
    wanted = {code: frozenset().union(*map(placeholders, texts.values())) for code, texts in EN.items()}
    missing = [
        f"{site.place} {site.code}: {sorted(lacking)}"
        for site in SITES
        if site.params is not None and (lacking := wanted.get(site.code, frozenset()) - site.params)
    ]
    assert not missing
