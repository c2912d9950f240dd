"""Children of tasks that detach themselves, for whatever is to end them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.leaky import Leak, a_leak


@pytest.fixture
def leaks(tmp_path: Path) -> Iterator[list[Leak]]:
    """For two tasks, on nodes of their own."""
    made = [a_leak(tmp_path / name) for name in ("one", "two")]
    yield made
    for leak in made:
        leak.end()
