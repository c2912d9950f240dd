"""The pages people look things up in are those the code would make."""

import pytest

from tests.architecture.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    assert FOLDER.joinpath(name).read_text("utf-8") == PAGES[name](), "run `make docs`"
