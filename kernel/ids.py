"""Prefixed ids (`run_01k…`) in order of their making: a ULID in lower case, fit for names of Ray and Kubernetes."""

import re
import secrets
import time

from ulid import ULID

_SHAPE = re.compile(r"^(job|run|clu|grp|rpk|rgp|pkg|vol|crd|tok|evt)_[0-9a-hjkmnp-tv-z]{26}$")


def new_id(prefix: str) -> str:
    """A ULID counts milliseconds; what a database tells apart are microseconds, which take the next ten bits."""
    milliseconds, microseconds = divmod(time.time_ns() // 1000, 1000)
    value = milliseconds << 80 | microseconds << 70 | secrets.randbits(70)
    return f"{prefix}_{str(ULID.from_int(value)).lower()}"


def looks_like_id(text: str) -> bool:
    return _SHAPE.match(text) is not None
