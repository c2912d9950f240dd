"""Children of a task that detach themselves, for whatever is to end them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.leaky import Leak, a_leak


@pytest.fixture
def leak(tmp_path: Path) -> Iterator[Leak]:
    made = a_leak(tmp_path / "pids")
    yield made
    made.end()
