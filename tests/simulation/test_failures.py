"""Clusters, ways and the service itself fail at random, and still: never two executions at once, no run lost.

`make failures` plays all 1,000 schedules; here are the first of them.
"""

import asyncio
from pathlib import Path

import pytest

from tests.simulation.failing_world import Told
from tests.simulation.failures import play
from tests.simulation.timeline import Timeline

SCHEDULES = 40


@pytest.mark.timeout(300)
async def test_schedules_of_failures(sqlite_template: Path, tmp_path: Path) -> None:
    everything = Told()
    for seed in range(SCHEDULES):
        told = await play(seed, sqlite_template, tmp_path)
        assert not told.problems, f"seed {seed}"
        everything.add(told)
    assert {"CLUSTER_LOST", "HEAD_LOST", "LEASE_LOST", "WINDOW_ENDED"} <= everything.attempt_ends.keys()
    assert everything.moves > SCHEDULES / 10, "hardly anything moved: the schedules test nothing"


async def test_time_passes_only_when_nobody_can_go_on() -> None:
    timeline, told = Timeline(), list[tuple[str, float]]()

    async def work(name: str, seconds: float) -> None:
        for _ in range(2):
            await timeline.sleep(seconds)
            await asyncio.sleep(0.01)  # of real time, as a database takes
            told.append((name, timeline.now_s))

    timeline.begin(work("a", 2))
    timeline.begin(work("b", 3))
    await timeline.play(100)
    assert told == [("a", 2), ("b", 3), ("a", 4), ("b", 6)]


async def test_a_failure_of_a_task_is_one_of_the_whole() -> None:
    timeline = Timeline()

    async def work() -> None:
        await timeline.sleep(1)
        raise ValueError("told")

    timeline.begin(work())
    with pytest.raises(ValueError, match="told"):
        await timeline.play(100)
