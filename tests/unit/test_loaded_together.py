"""Keys asked for at the same moment are loaded together, and none suffers for another."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from kernel.together import LoadedTogether


class Store:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.was_asked = asyncio.Event()

    async def load(self, keys: Sequence[str]) -> Mapping[str, int]:
        self.asked.append(list(keys))
        self.was_asked.set()
        await asyncio.sleep(0)
        return {key: int(key) for key in keys if key != "0"}


async def test_what_is_asked_for_at_once_is_loaded_at_once() -> None:
    store = Store()
    loads = LoadedTogether(store.load)
    assert await asyncio.gather(*(loads.get(key) for key in "1231")) == [1, 2, 3, 1]
    assert store.asked == [["1", "2", "3"]]


async def test_what_comes_meanwhile_is_the_next_load() -> None:
    store = Store()
    loads = LoadedTogether(store.load)
    first = asyncio.create_task(loads.get("1"))
    await store.was_asked.wait()
    assert await asyncio.gather(first, loads.get("1"), loads.get("2")) == [1, 1, 2]
    assert store.asked == [["1"], ["1", "2"]]


async def test_nothing_there_is_none() -> None:
    assert await LoadedTogether(Store().load).get("0") is None


async def test_a_key_that_cannot_be_loaded_fails_alone() -> None:
    loads = LoadedTogether(Store().load)
    good, bad = await asyncio.gather(loads.get("1"), loads.get("x"), return_exceptions=True)
    assert good == 1
    assert isinstance(bad, ValueError)


async def test_one_that_stops_waiting_takes_nothing_from_others() -> None:
    loads = LoadedTogether(Store().load)
    leaving, staying = (asyncio.create_task(loads.get("1")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await staying == 1
