"""State machines as data: a table of allowed moves and one `move()` that refuses all others."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)
Transitions = Mapping[State, frozenset[State]]


class IllegalMove(Exception):
    """A programming error: the code asked for a step that the table does not have."""

    def __init__(self, current: StrEnum, target: StrEnum) -> None:
        super().__init__(f"{type(current).__name__}: {current} -> {target} is not in the table")


def move(table: Transitions[State], current: State, target: State) -> State:
    if target not in table[current]:
        raise IllegalMove(current, target)
    return target


def finals(table: Transitions[State]) -> frozenset[State]:
    """The states nothing leads out of."""
    return frozenset(state for state, following in table.items() if not following)
