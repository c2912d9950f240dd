"""What a text that people give may hold."""

import unicodedata

_CONTROL = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def has_control(text: str, allowed: str = "") -> bool:
    """Characters that steer instead of showing: C0 and C1, line separators, lone surrogates, direction controls."""
    return any(
        char not in allowed and (char in _BIDI_CONTROL or unicodedata.category(char) in _CONTROL) for char in text
    )
