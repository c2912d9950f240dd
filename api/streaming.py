"""Server-sent events: where a client resumes, and a wait that ends on news, on time, or when the service stops.

FastAPI sends what a generator yields, with a comment every 15 s so that idle connections stay open:

    @router.get("/runs/stream", response_class=EventSourceResponse)
    async def stream_runs(call: Reading, since: ResumeFrom) -> AsyncIterator[ServerSentEvent]:
        while await call.services.news.wait("runs", timeout_s=5):
            ...
            yield ServerSentEvent(data=…, event="run", id=…)

The answer has begun when a generator first runs: what can be refused (404, 403) belongs into a dependency before it.
"""

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request

from kernel.errors import InvalidInput

MAX_ID_DIGITS = 18


class News:
    """Wakes the streams of this process; `ring` can listen to `Hints`.

    Level-triggered: what a stream sends comes from the database. A lost ring, or one in another process, costs no more
    than the rest of a timeout.
    """

    def __init__(self) -> None:
        self._bells: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._stopping = False

    async def wait(self, topic: str, *, timeout_s: float) -> bool:
        """Until there may be something new. False: the service stops, end the stream."""
        if self._stopping:
            return False
        bell = asyncio.Event()
        self._bells[topic].add(bell)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await bell.wait()
        finally:
            self._bells[topic].discard(bell)
            if not self._bells[topic]:
                del self._bells[topic]
        return not self._stopping

    def ring(self, topic: str) -> None:
        for bell in self._bells.get(topic, ()):
            bell.set()

    def stop(self) -> None:
        self._stopping = True
        for topic in self._bells:
            self.ring(topic)


async def resume_from(request: Request) -> int | None:
    """The id of the last event a reconnecting client has seen; ours are numbers."""
    told = request.headers.get("last-event-id") or None
    if told is None:
        return None
    if not told.isascii() or not told.isdecimal() or len(told) > MAX_ID_DIGITS:
        raise InvalidInput("INVALID_CURSOR", pointer="/Last-Event-ID")
    return int(told)


ResumeFrom = Annotated[int | None, Depends(resume_from)]
