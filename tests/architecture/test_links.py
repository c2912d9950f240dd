"""Links between pages lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = [(page.parent / path if path else page, anchor) for path, anchor in _LINK.findall(text)]
    assert not [f"{path}#{anchor}" for path, anchor in targets if not _is_there(path, anchor)]


def _is_there(path: Path, anchor: str) -> bool:
    return path.exists() and (not anchor or anchor in _anchors(path))


def _anchors(page: Path) -> Iterator[str]:
    """Of headings, as GitHub makes them."""
    for heading in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
