"""The words for people, in English and Chinese: `texts/*.{en,zh}.json` map a code to title, detail and advice.

    {"NAME_TAKEN": {"title": "Name taken", "detail": "There is already a {kind} named {name}.", "advice": "…"}}

`advice` may be missing. Texts are filled with the params of the error, reason or end that carries the code; code below
`api/` never contains prose. `tests/architecture` holds every code in the source against these files.
"""

import json
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any


class Language(StrEnum):
    EN = "en"
    ZH = "zh"


_LANGUAGES = {str(language): language for language in Language}


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    title: str
    detail: str
    advice: str | None = None


def say(code: str, params: Mapping[str, Any], language: Language) -> Words:
    """The words for `code`; for one without words itself: an answer must not fail for want of prose."""
    entry = catalogue(language).get(code)
    if entry is None:
        return Words(title=code, detail=code)
    return Words(
        title=entry["title"],
        detail=_fill(entry["detail"], params),
        advice=_fill(entry["advice"], params) if "advice" in entry else None,
    )


def language_of(accept_language: str | None) -> Language:
    """The one of our languages that an `Accept-Language` header likes best; English when it names neither."""
    best, best_weight = Language.EN, 0.0
    for part in (accept_language or "").split(","):
        tag, _, quality = part.strip().partition(";q=")
        language = _LANGUAGES.get(tag.split("-")[0].lower())
        weight = _weight(quality)
        if language and weight > best_weight:
            best, best_weight = language, weight
    return best


@cache
def catalogue(language: Language) -> dict[str, dict[str, str]]:
    """All texts of one language. Two files that explain the same code are a mistake of ours."""
    merged: dict[str, dict[str, str]] = {}
    for name, texts in text_files(language):
        if twice := merged.keys() & texts.keys():
            raise ValueError(f"{name}: {sorted(twice)} have words in another file")
        merged.update(texts)
    return merged


def text_files(language: Language) -> Iterable[tuple[str, dict[str, dict[str, str]]]]:
    folder = files("api").joinpath("texts")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(f".{language}.json"):
            yield file.name, json.loads(file.read_text("utf-8"))


def placeholders(template: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name)


def _weight(quality: str) -> float:
    try:
        return float(quality) if quality else 1.0
    except ValueError:
        return 0.0


def _fill(template: str, params: Mapping[str, Any]) -> str:
    return template.format_map({name: _show(params.get(name)) for name in placeholders(template)})


def _show(value: Any) -> str:
    if isinstance(value, bool | None):
        return "?" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_show(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_show(one)}" for key, one in value.items())
    return str(value)
