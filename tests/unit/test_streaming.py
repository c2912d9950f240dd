"""The wait of a stream ends on news, on time, and when the service stops."""

import asyncio

from api.streaming import News


async def test_news_end_the_wait() -> None:
    news = News()
    waiting = [asyncio.create_task(news.wait("runs", timeout_s=60)) for _ in range(3)]
    await asyncio.sleep(0)
    news.ring("other")
    news.ring("runs")
    assert await asyncio.gather(*waiting) == [True, True, True]


async def test_time_ends_the_wait() -> None:
    assert await News().wait("runs", timeout_s=0.001) is True


async def test_a_stop_ends_every_wait_now_and_later() -> None:
    news = News()
    waiting = [asyncio.create_task(news.wait(topic, timeout_s=60)) for topic in ("a", "b")]
    await asyncio.sleep(0)
    news.stop()
    assert await asyncio.gather(*waiting) == [False, False]
    assert await news.wait("a", timeout_s=60) is False


async def test_nothing_is_kept_of_those_who_left() -> None:
    news = News()
    waiting = asyncio.create_task(news.wait("runs", timeout_s=60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not news._bells
