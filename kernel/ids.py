"""Prefixed, sortable ids (`run_01k…`): a ULID in lower case, fit for Ray submission ids and Kubernetes names."""

import re

from ulid import ULID

_SHAPE = re.compile(r"^(job|run|clu|grp|rpk|rgp|pkg|vol|crd|tok|evt)_[0-9a-hjkmnp-tv-z]{26}$")


def new_id(prefix: str) -> str:
    return f"{prefix}_{str(ULID()).lower()}"


def looks_like_id(text: str) -> bool:
    return _SHAPE.match(text) is not None
