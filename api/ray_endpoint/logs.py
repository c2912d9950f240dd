"""The log of a submission from its first byte on, attempt after attempt, whole or as it grows."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.websockets import WebSocket, WebSocketDisconnect

from api.wiring import Services
from rayjobs import run_store
from rayjobs.log_pages import WhichLog, find_log, read_page
from rayjobs.model.run import RUN_FINALS, AttemptState
from rayjobs.run_service import LOG_LOOP

PAGE_BYTES = 256 * 2**10
"""As text at most thrice as long: a broken byte is shown as a character of three. Ray's client takes < 4 MiB."""
LOOK_EVERY_S = 0.25
LOOK_FOR_START_EVERY_S = 1.0
COLLECTED_WITHIN_S = 30.0
"""How long the end of a log may take to come from the cluster of a run that is over."""


@dataclass(slots=True)
class _Reader:
    services: Services
    run_id: str
    epoch: int = 1
    offset: int = 0
    run_is_over: bool = False
    is_at_end: bool = False
    """Nothing will come any more."""
    look_again_s: float = LOOK_EVERY_S

    async def read(self) -> str:
        """What comes next; empty while there is nothing more."""
        async with self.services.database.read() as session:
            run = await run_store.get_run(session, self.run_id)
            self.run_is_over = run.state in RUN_FINALS
            if run.epoch < self.epoch:
                self.is_at_end, self.look_again_s = self.run_is_over, LOOK_FOR_START_EVERY_S
                return ""
            self.look_again_s = LOOK_EVERY_S
            which = WhichLog(attempt=self.epoch)
            found = await find_log(session, run, which)
        page = await read_page(self.services.logs, run, found, offset=self.offset, limit_bytes=PAGE_BYTES)
        self.offset = page.next_offset
        if page.data:
            return page.data
        if page.complete or found is None or found.attempt.state == AttemptState.ENDED:
            self.epoch, self.offset = self.epoch + 1, 0
            return await self.read()
        self.services.hints.send_now(LOG_LOOP, found.attempt.id)
        return ""

    async def wait(self) -> bool:
        """Until there may be more. False: the service stops."""
        return await self.services.news.wait(self.run_id, timeout_s=self.look_again_s)


async def whole_log(services: Services, run_id: str) -> AsyncIterator[str]:
    """`{"logs": "<all there is>"}`, piece by piece, since a log may be larger than memory.

    Of a run that is over it is all there ever will be, as with Ray.
    """
    reader = _Reader(services, run_id)
    deadline = time.monotonic() + COLLECTED_WITHIN_S
    yield '{"logs": "'
    while True:
        if text := await reader.read():
            yield json.dumps(text)[1:-1]
        elif reader.is_at_end or not reader.run_is_over or time.monotonic() > deadline:
            break
        else:
            await reader.wait()
    yield '"}'


async def tail(services: Services, run_id: str, socket: WebSocket) -> None:
    """Closed (1000) only once the run is over and everything was sent: to Ray's client any close means just that."""
    await socket.accept()
    reader = _Reader(services, run_id)
    gone = asyncio.create_task(_until_gone(socket))
    try:
        while not gone.done():
            if text := await reader.read():
                await socket.send_text(text)
            elif reader.is_at_end:
                await socket.close()
                return
            elif not await reader.wait():
                return  # the service stops, which must not look like the end of the log
    except WebSocketDisconnect:
        return
    finally:
        gone.cancel()


async def _until_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
