"""The pages of `docs/reference` that are made from the code. `make docs` (`python -m tests.architecture.reference`)."""

from collections.abc import Callable, Mapping
from pathlib import Path

from api.cli.reference import reference
from tests.architecture import errors_page, parameters_page, settings_page, states

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "advanced-parameters.md": parameters_page.render,
    "cli.md": reference,
    "errors.md": errors_page.render,
    "settings.md": settings_page.render,
    "states.md": states.render,
}

if __name__ == "__main__":
    for name, render in PAGES.items():
        FOLDER.joinpath(name).write_text(render(), "utf-8")
