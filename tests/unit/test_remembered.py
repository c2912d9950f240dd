"""What is remembered of rows: as long as their versions stand, and no more than is of use."""

from kernel.remembered import Remembered


def test_it_is_known_at_its_version_alone() -> None:
    remembered: Remembered[str, str] = Remembered(10)
    remembered.keep("a", 1, "first")
    remembered.keep("b", 7, "other")
    assert remembered.known({"a": 1, "b": 8, "c": 1}) == {"a": "first"}
    remembered.keep("a", 2, "second")
    assert remembered.known({"a": 1}) == {}
    assert remembered.known({"a": 2}) == {"a": "second"}


def test_when_it_is_too_much_what_is_not_asked_for_goes() -> None:
    remembered: Remembered[int, str] = Remembered(2)
    for key in range(3):
        remembered.keep(key, 1, f"{key}")
    assert remembered.known({1: 1, 2: 1}) == {1: "1", 2: "2"}
    assert remembered.known({0: 1, 1: 1, 2: 1}) == {0: "0", 1: "1", 2: "2"}
    assert remembered.known({1: 1}) == {1: "1"}
    assert remembered.known({0: 1, 1: 1, 2: 1}) == {1: "1"}
