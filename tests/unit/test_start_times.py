"""First looks at drivers settle about where these have started."""

import pytest

from rayjobs.start_times import LEAST_S, MOST_S, UNKNOWN_S, StartTimes


@pytest.mark.parametrize(
    ("takes_s", "least_s", "most_s"), [(0.0, LEAST_S, LEAST_S), (0.9, 0.7, 1.2), (9.0, MOST_S, MOST_S)]
)
def test_it_follows_what_was_seen(takes_s: float, least_s: float, most_s: float) -> None:
    times = StartTimes()
    for _ in range(100):
        times.note("clu_1", has_started=times.of("clu_1") >= takes_s)
    assert least_s <= times.of("clu_1") <= most_s
    assert times.of("clu_2") == UNKNOWN_S
