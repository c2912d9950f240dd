"""The diagrams people read are those of the tables the code moves by."""

from tests.architecture.states import FILE, render


def test_diagrams_are_those_of_the_tables() -> None:
    assert FILE.read_text("utf-8") == render(), "run `make docs`"
