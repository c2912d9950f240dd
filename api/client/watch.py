"""A run as it changes, through outages of the server or of the way to it."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from api.client import Json
from api.client.errors import ApiError, ServerUnreachable, WaitTimedOut
from api.client.runs import Runs
from rayjobs.model.run import RUN_FINALS, RunState

T = TypeVar("T")

PATIENCE_S = 600
"""How long an unreachable server is asked again. Runs outlive an upgrade of Muster; so should whoever watches them."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.25, 3.0, 1.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """State, condition or phases of the run are other than before."""

    run: Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupted:
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class LogText:
    data: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogCutShort:
    """The run is over, and still its log does not end: the rest will not come."""


Event = Changed | Interrupted | Resumed | LogText | LogCutShort
Asked = Generator[Event, None, T]


class RunWatch:
    """Polls one run. `clock` and `sleep` are the process's own but in tests."""

    def __init__(
        self,
        runs: Runs,
        run_id: str,
        *,
        timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._runs = runs
        self._run_id = run_id
        self._clock = clock
        self._sleep = sleep
        self._deadline = None if timeout_s is None else clock() + timeout_s
        self._shown: object = None
        self._interrupted = False
        self._pause_s = _FIRST_PAUSE_S

    def changes(self) -> Iterator[Event]:
        """Ends with the run. Raises `WaitTimedOut`, and `ServerUnreachable` when patience is at its end."""
        while True:
            run = yield from self.look()
            if is_final(run):
                return
            self.pause()

    def look(self) -> Asked[Json]:
        run = yield from self.ask(lambda: self._runs.get(self._run_id))
        face = _face(run)
        if face != self._shown:
            self._shown = face
            self.hurry()
            yield Changed(run=run)
        return run

    def looks_the_same(self, run: Json) -> bool:
        return _face(run) == self._shown

    def ask(self, question: Callable[[], T]) -> Asked[T]:
        """Ask until there is an answer."""
        since = self._clock()
        while True:
            try:
                answer = question()
            except (ServerUnreachable, ApiError) as error:
                passing = isinstance(error, ServerUnreachable) or error.is_passing
                if not passing or self._clock() - since > PATIENCE_S:
                    raise
                if not self._interrupted:
                    yield from self.interrupt(str(error))
                self.pause()
            else:
                if self._interrupted:
                    self._interrupted = False
                    yield Resumed()
                return answer

    def interrupt(self, reason: str) -> Iterator[Event]:
        self._interrupted = True
        yield Interrupted(reason=reason)

    def hurry(self) -> None:
        """Something happened: more may follow soon."""
        self._pause_s = _FIRST_PAUSE_S

    def pause(self) -> None:
        left_s = self._pause_s if self._deadline is None else self._deadline - self._clock()
        if left_s <= 0:
            raise WaitTimedOut(self._run_id)
        self._sleep(min(self._pause_s, left_s))
        self._pause_s = min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S)


def is_final(run: Json) -> bool:
    return run["state"] in RUN_FINALS


def has_reached(run: Json, target: RunState) -> bool:
    """Whether the run is in the state or has left it behind; an ended one never ran unless it was started."""
    state = RunState(run["state"])
    if state is target:
        return True
    if target in RUN_FINALS:
        return False
    if state not in RUN_FINALS:
        return _STEPS.index(state) > _STEPS.index(target)
    return target is not RunState.RUNNING or run.get("started_at") is not None


_STEPS = [state for state in RunState if state not in RUN_FINALS]


def _face(run: Json) -> tuple[Any, ...]:
    """What people are told about; a new prediction alone is no news."""
    condition = run.get("condition") or {}
    phases = [(phase["name"], phase.get("state"), phase.get("detail")) for phase in run.get("phases") or ()]
    return (
        run["state"],
        condition.get("code"),
        condition.get("detail"),
        condition.get("position"),
        run.get("cluster"),
        phases,
    )
