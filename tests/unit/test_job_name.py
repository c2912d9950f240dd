"""Names of jobs: R40, A24, api.md §1 and §13."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.ids import looks_like_id, new_id
from rayjobs.job_name import MAX_LENGTH, check_name, copy_name


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "x" * 100,
        "训练" * 50,
        "train resnet: try 2 (α=0.1)?#%",
        "👩‍🔬",
        "job_01k",
        "name-check-2",
        "...",
    ],
)
def test_free_text_is_a_name(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "NAME_REQUIRED"),
        (" \t", "NAME_REQUIRED"),
        ("x" * 101, "NAME_TOO_LONG"),
        ("练" * 101, "NAME_TOO_LONG"),
        (" a", "NAME_HAS_BLANKS"),
        ("a\n", "NAME_HAS_BLANKS"),
        ("a\u3000", "NAME_HAS_BLANKS"),
        ("a/b", "NAME_INVALID"),
        ("a\0b", "NAME_INVALID"),
        ("a\x7fb", "NAME_INVALID"),
        ("a\u2028b", "NAME_INVALID"),
        ("a\u202eb", "NAME_INVALID"),
        ("a\ud800b", "NAME_INVALID"),
        (new_id("job"), "NAME_LOOKS_LIKE_ID"),
        (new_id("run"), "NAME_LOOKS_LIKE_ID"),
        ("name-check", "NAME_RESERVED"),
        ("NEW", "NAME_RESERVED"),
        ("..", "NAME_RESERVED"),
    ],
)
def test_each_rule_has_its_own_code(name: str, code: str) -> None:
    found = check_name(name)
    assert found is not None
    assert (found.code, found.pointer) == (code, "/name")


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("train", 1, "train-copy"),
        ("train", 2, "train-copy-2"),
        ("train-copy", 1, "train-copy-copy"),
        ("x" * 95, 1, "x" * 95 + "-copy"),
        ("x" * 96, 1, "x" * 95 + "-copy"),
        ("练" * 100, 10, "练" * 92 + "-copy-10"),
    ],
)
def test_copy_name_cuts_the_old_part(name: str, number: int, expected: str) -> None:
    assert copy_name(name, number) == expected


@given(st.text(max_size=120).filter(lambda name: check_name(name) is None), st.integers(1, 10_000))
def test_every_copy_of_a_name_is_a_name(name: str, number: int) -> None:
    copied = copy_name(name, number)
    assert check_name(copied) is None
    assert len(copied) <= MAX_LENGTH
    assert copied != copy_name(name, number + 1)


@given(st.text(max_size=120))
def test_a_name_can_stand_in_a_path_and_is_no_id(name: str) -> None:
    if check_name(name) is None:
        assert "/" not in name
        assert name == name.strip() != ""
        assert name.encode()
        assert not looks_like_id(name)
