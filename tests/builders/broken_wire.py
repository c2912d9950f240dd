"""A wire between a client and a server that can be cut or fall silent after so many bytes of an answer or a request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_BLOCK_BYTES = 16 * 1024


@dataclass(slots=True)
class Wire:
    """`cuts`: after how many bytes of an answer its connection is cut, one after the other; `stalls`: falls silent."""

    port: int = 0
    cuts: list[int] = field(default_factory=list)
    stalls: list[int] = field(default_factory=list)
    ask_cuts: list[int] = field(default_factory=list)
    """The same for what a client sends on one connection."""
    ask_stalls: list[int] = field(default_factory=list)
    asked_bytes: int = 0
    broken: int = 0
    on_break: Callable[[], None] = lambda: None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def wire_to(port: int) -> AsyncIterator[Wire]:
    wire, tasks = Wire(), set[asyncio.Task[None]]()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", port)
        connection = _Connection(wire)
        try:
            async with asyncio.TaskGroup() as group:
                onward = group.create_task(connection.ask(reader, back))
                await connection.answer(there, writer)
                onward.cancel()
        except* (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for end in (back, writer):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()
            tasks.discard(task)

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    yield wire
    server.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.wait_closed()


@dataclass(slots=True)
class _Connection:
    wire: Wire
    answered: int = 0
    """Bytes of the present answer."""

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = 0
        while block := await reader.read(_BLOCK_BYTES):
            self.answered = 0
            asked += len(block)
            self.wire.asked_bytes += len(block)
            limit = next(iter(self.wire.ask_cuts or self.wire.ask_stalls), None)
            if limit is not None and asked > limit:
                await self._break(writer)
            writer.write(block)
            await writer.drain()

    async def _break(self, writer: asyncio.StreamWriter) -> None:
        self.wire.broken += 1
        if not self.wire.ask_cuts:
            await asyncio.Event().wait()
        self.wire.ask_cuts.pop(0)
        writer.transport.abort()
        raise ConnectionAbortedError

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while block := await reader.read(_BLOCK_BYTES):
            limit = next(iter(self.wire.cuts or self.wire.stalls), None)
            if limit is None or self.answered + len(block) <= limit:
                self.answered += len(block)
                writer.write(block)
                await writer.drain()
                continue
            self.wire.broken += 1
            self.wire.on_break()
            writer.write(block[: limit - self.answered])
            await writer.drain()
            if self.wire.cuts:
                self.wire.cuts.pop(0)
                return
            self.wire.stalls.pop(0)
            await asyncio.Event().wait()
