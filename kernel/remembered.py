"""What was made of rows, remembered for as long as they stay as they are: many look, few change."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """By key and version. Beyond `size`, and twice what is asked for at once, whatever is not asked for just now goes.

    What is kept is shared, so it must be frozen. Only for what is read in a transaction that writes nothing: a version
    that is rolled back comes again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: dict[Key, tuple[int, Value]] = {}

    def known(self, versions: Mapping[Key, int]) -> dict[Key, Value]:
        """Those of these keys that are known at their versions."""
        kept = self._kept
        if len(kept) > max(self._size, 2 * len(versions)):
            kept = self._kept = {key: kept[key] for key in versions if key in kept}
        found: dict[Key, Value] = {}
        for key, version in versions.items():
            one = kept.get(key)
            if one is not None and one[0] == version:
                found[key] = one[1]
        return found

    def keep(self, key: Key, version: int, value: Value) -> None:
        self._kept[key] = (version, value)
