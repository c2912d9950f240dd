"""What really ran: each execution of a command writes to one file when it begins, that it goes on, and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import inf
from pathlib import Path

BEAT_S = 0.2
_COMMAND = """exec {{nothing}}<> <(:)
note() {{ echo "$MUSTER_RUN_ID $MUSTER_ATTEMPT ${{MUSTER_PREVIOUS_CLUSTER:--}} $1 $EPOCHREALTIME" >> {path}; }}
trap 'note term' TERM
note start
until [ -e {gate} ]; do note beat; read -rt {beat_s} -u $nothing; done
note end
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One attempt, as it told of itself. `words` are start, beat, term and end."""

    attempt: int
    previous_cluster: str | None
    words: tuple[str, ...]
    times: tuple[float, ...]

    @property
    def began_at(self) -> float:
        return self.times[0]

    @property
    def last_at(self) -> float:
        return self.times[-1]

    @property
    def longest_silence_s(self) -> float:
        return max((later - earlier for earlier, later in pairwise(self.times)), default=0.0)


class Journal:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._path = folder / "journal"
        self._path.touch()

    def command(self, gate: str) -> str:
        """It goes on until the gate is open, and does not heed TERM."""
        return _COMMAND.format(path=self._path, gate=self._folder / gate, beat_s=BEAT_S)

    def open(self, gate: str) -> None:
        (self._folder / gate).touch()

    def executions(self, run: str) -> list[Execution]:
        """In the order in which they began."""
        lines = [line.split() for line in self._path.read_text().splitlines()]
        of_run = sorted((line for line in lines if line[0] == run), key=lambda line: int(line[1]))
        return [_execution(attempt, list(group)) for attempt, group in groupby(of_run, key=lambda line: int(line[1]))]


def assert_never_two(executions: Sequence[Execution], thawed_at: float = inf) -> None:
    """Each begins once and after the last word of the one before; at most the last comes to its end.

    What thaws may get a word out in the moment until its guard, which thaws with it, has looked at the clock.
    """
    for execution in executions:
        assert execution.words.count("start") == 1, execution
    for earlier, later in pairwise(executions):
        assert "end" not in earlier.words, earlier
        last_at = max(at for at in earlier.times if at < thawed_at)
        assert last_at < later.began_at, (earlier, later)
        assert earlier.last_at < thawed_at + BEAT_S, earlier


def _execution(attempt: int, lines: list[list[str]]) -> Execution:
    (previous,) = {line[2] for line in lines}
    return Execution(
        attempt=attempt,
        previous_cluster=None if previous == "-" else previous,
        words=tuple(line[3] for line in lines),
        times=tuple(float(line[4]) for line in lines),
    )
