"""Waiting for what other processes do, with a deadline and something to say when it passes."""

import time
from collections.abc import Callable


def wait_until(
    true: Callable[[], bool], timeout_s: float = 10, say: Callable[[], object] = str, every_s: float = 0.02
) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {say()}"
        time.sleep(every_s)
