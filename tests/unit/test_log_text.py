"""What of a driver's log is the user's, and where a page may be cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayjobs.log_text import HEADER_WITHIN_BYTES, drop_ray_lines, whole_characters

SETUP = b"2026-11-30 12:00:00,001\tINFO job_manager.py:568 -- Runtime env is setting up.\n"
RUNNING = b"2026-11-30 12:00:01,001\tINFO job_supervisor.py:1 -- Running entrypoint for job run_1-a1: exec python3 x\n"


class TestRayLines:
    def test_both_lines_go(self) -> None:
        data = SETUP + RUNNING + b"hello\nworld"
        assert drop_ray_lines(data, header_done=False, is_end=False) == (b"hello\nworld", len(data), True)

    def test_output_before_the_second_line_is_kept(self) -> None:
        data = SETUP + b"early\n" + RUNNING + b"late\n"
        assert drop_ray_lines(data, header_done=False, is_end=False)[0] == b"early\nlate\n"

    def test_until_then_only_whole_lines_are_taken(self) -> None:
        assert drop_ray_lines(SETUP + RUNNING[:40], header_done=False, is_end=False) == (b"", len(SETUP), False)

    def test_at_the_end_everything_is_taken(self) -> None:
        assert drop_ray_lines(b"no newline", header_done=False, is_end=True) == (b"no newline", 10, False)

    def test_afterwards_nothing_is_touched(self) -> None:
        assert drop_ray_lines(RUNNING, header_done=True, is_end=False) == (RUNNING, len(RUNNING), True)

    def test_a_carriage_return_ends_no_line(self) -> None:
        assert drop_ray_lines(b"10%\r20%\r", header_done=False, is_end=False) == (b"", 0, False)

    def test_a_program_that_writes_no_lines_is_not_held_back_for_ever(self) -> None:
        data = b"x" * HEADER_WITHIN_BYTES
        assert drop_ray_lines(data, header_done=False, is_end=False) == (data, len(data), True)

    @given(st.lists(st.binary(min_size=1, max_size=20), max_size=8))
    def test_in_pieces_or_at_once_the_text_is_the_same(self, pieces: list[bytes]) -> None:
        whole = SETUP + b"".join(pieces) + b"\n" + RUNNING + b"end"
        at_once = drop_ray_lines(whole, header_done=False, is_end=True)[0]
        text, position, done = b"", 0, False
        for end in range(1, len(whole) + 1):
            part, taken, done = drop_ray_lines(whole[position:end], header_done=done, is_end=end == len(whole))
            text, position = text + part, position + taken
        assert text == at_once


class TestWholeCharacters:
    @pytest.mark.parametrize("text", ["plain", "日志", "e\u0301", "🙂"])
    def test_a_cut_character_waits_for_the_next_page(self, text: str) -> None:
        data = text.encode()
        for end in range(len(data) + 1):
            kept = whole_characters(data[:end], is_end=False)
            assert data.startswith(kept)
            kept.decode()

    def test_at_the_end_even_a_broken_one_is_shown(self) -> None:
        assert whole_characters(b"ab\xe6", is_end=True) == b"ab\xe6"

    @given(st.binary(max_size=64))
    def test_at_most_three_bytes_are_held_back(self, data: bytes) -> None:
        assert len(data) - len(whole_characters(data, is_end=False)) <= 3
