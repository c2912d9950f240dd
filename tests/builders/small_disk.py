"""A disk that is full, for whoever runs the tests."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def largest_file_bytes(limit: int) -> Iterator[None]:
    """The kernel refuses to write further, as on a full disk. Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
