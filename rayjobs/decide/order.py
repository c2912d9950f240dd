"""The order in which waiting runs are looked at: priority, then age. Total, so that replay gives the same plan."""

from collections.abc import Iterable

from rayjobs.model.job import DEFAULT_PRIORITY
from rayjobs.snapshot import WaitingRun


def order_queue(runs: Iterable[WaitingRun]) -> list[WaitingRun]:
    """9 first; no priority orders as 5 (A16); equals by age, then id."""
    return sorted(runs, key=lambda run: (-effective_priority(run), run.enqueued_at, run.id))


def effective_priority(run: WaitingRun) -> int:
    return run.priority if run.priority is not None else DEFAULT_PRIORITY
