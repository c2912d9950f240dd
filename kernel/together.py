"""What comes at the same moment is done together, so that a burst costs its work and not its round trips."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Unit = Callable[[AsyncSession], Awaitable[Result]]

AT_ONCE = 32


class LoadedTogether(Generic[Key, Result]):
    """Asked for one key, loads all keys that are asked for meanwhile; a key that has nothing is left out."""

    def __init__(self, load: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Result]]]) -> None:
        self._load = load
        self._waiting: dict[Key, asyncio.Future[Result | None]] = {}
        self._worker: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Result | None:
        answer = self._waiting.setdefault(key, asyncio.get_running_loop().create_future())
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="loaded together")
        return await asyncio.shield(answer)

    async def _work(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            await self._answer(asked)

    async def _answer(self, asked: Mapping[Key, "asyncio.Future[Result | None]"]) -> None:
        try:
            found = await self._load(list(asked))
        except Exception as error:  # noqa: BLE001 - it is whoever waits who has to deal with it
            if len(asked) > 1:
                for key, answer in asked.items():
                    await self._answer({key: answer})
            else:
                next(iter(asked.values())).set_exception(error)
            return
        for key, answer in asked.items():
            answer.set_result(found.get(key))


class Together:
    """Units of work that share a transaction.

    What comes while one batch is at work is the next one: whoever comes alone waits for nobody. If anything goes wrong
    in a batch it is rolled back and each of its units is done again by itself, so that none answers for another.
    Nothing is flushed in between: a unit does not see what those before it have added.
    """

    def __init__(self, write: Callable[[], AbstractAsyncContextManager[AsyncSession]]) -> None:
        self._write = write
        self._waiting: list[tuple[Unit[Any], asyncio.Future[Any]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def do(self, unit: Unit[Result]) -> Result:
        """Answers once the unit is durable."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="together")
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
            await self._do([(unit, answer) for unit, answer in batch if not answer.done()])

    async def _do(self, batch: Sequence[tuple[Unit[Any], asyncio.Future[Any]]]) -> None:
        try:
            async with self._write() as session:
                with session.no_autoflush:
                    results = [await unit(session) for unit, _ in batch]
        except Exception as error:  # noqa: BLE001 - it is whoever waits who has to deal with it
            if len(batch) > 1:
                for one in batch:
                    await self._do([one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)
