"""The log of a run from its first byte to its last, whatever breaks between.

Offsets are the truth: pages are read by offset until there is no more, then a stream tells what is new until it ends or
breaks, then pages again. Only a page can say that the log is complete; a stream that stops says nothing.
"""

import json
from collections.abc import Iterator
from typing import Any

from api.client import Json
from api.client.errors import ApiError, ServerUnreachable, Silence
from api.client.runs import DRIVER, PAGE_BYTES, LogOf, Runs
from api.client.watch import Asked, Event, LogCutShort, LogText, RunWatch, is_final
from rayjobs.model.run import RunState

SILENCE_S = 6
"""A stream that says nothing for so long is left for a look at the run; the way to the server may even have died."""
_LOOK_EVERY_S = 5
_SETTLE_S = 30
"""How long after the end of a run its last bytes may take to arrive."""


class RunFollower(RunWatch):
    """All attempts after the epoch `after`, or only `attempt`. `epoch` and `offset` tell what was taken."""

    def __init__(
        self,
        runs: Runs,
        run_id: str,
        *,
        of: LogOf = DRIVER,
        attempt: int | None = None,
        after: int = 0,
        offset: int = 0,
        **pace: Any,
    ) -> None:
        super().__init__(runs, run_id, **pace)
        self.of = of
        self.epoch = attempt
        self.offset = offset
        self._only = attempt
        self._done = after

    def events(self) -> Iterator[Event]:
        """Ends when the run has ended and its log is complete."""
        quiet_since = self._clock()
        while True:
            run = yield from self.look()
            self.epoch = self._next_epoch(run)
            if self.epoch is None:
                if is_final(run):
                    return
                self.pause()
                continue
            before = self.offset
            complete = yield from self._catch_up()
            if self.offset > before:
                self.hurry()
                quiet_since = self._clock()
            if complete:
                self._done, self.offset = self.epoch, 0
            elif not is_final(run):
                yield from self._await_more(run)
            elif self._clock() - quiet_since > _SETTLE_S:
                yield LogCutShort()
                return
            else:
                self.pause()

    def _next_epoch(self, run: Json) -> int | None:
        epochs = [attempt["epoch"] for attempt in run.get("attempts") or ()]
        if self._only is not None:
            return self._only if self._done < self._only else None
        return min((epoch for epoch in epochs if epoch > self._done), default=None)

    def _catch_up(self) -> Asked[bool]:
        """Everything that is there now; True when nothing will follow."""
        while True:
            page = yield from self.ask(
                lambda: self._runs.log(
                    self._run_id, of=self.of, attempt=self.epoch, offset=self.offset, limit_bytes=PAGE_BYTES
                )
            )
            grew = page["next_offset"] > self.offset
            if page["data"]:
                yield LogText(data=page["data"])
            self.offset = page["next_offset"]
            if page["complete"] or not grew:
                return bool(page["complete"])

    def _await_more(self, run: Json) -> Iterator[Event]:
        if run["state"] != RunState.RUNNING:
            self.pause()
            return
        before = self.offset
        try:
            yield from self._listen()
        except Silence:
            pass
        except (ServerUnreachable, ApiError) as error:
            yield from self.interrupt(str(error))
        if self.offset == before:
            self.pause()

    def _listen(self) -> Iterator[Event]:
        """Until the stream ends, skips, or the run itself has news."""
        looked = self._clock()
        stream = self._runs.log_stream(
            self._run_id, of=self.of, attempt=self.epoch, offset=self.offset, silence_s=SILENCE_S
        )
        with stream as events:
            for event in events:
                piece = json.loads(event.data) if event is not None and event.name == "log" else None
                if (event is not None and event.name == "end") or (piece and piece["offset"] != self.offset):
                    return
                if piece:
                    yield LogText(data=piece["data"])
                    self.offset = piece["next_offset"]
                if self._clock() - looked <= _LOOK_EVERY_S:
                    continue
                looked = self._clock()
                if not self.looks_the_same(self._runs.get(self._run_id)):
                    return
        yield from self.interrupt("the stream broke off")
