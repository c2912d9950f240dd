"""Runs that have lost their clusters are not sent to others all at once: what is left must bear them.

And where it is rather Muster that is cut off, the clusters have time to come back before everything has moved.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

AT_ONCE = 10
WITHIN = timedelta(seconds=10)
"""One a second in the long run; Karmada takes half of that, for whole applications."""


def next_move_at(moves: Sequence[datetime], now: datetime) -> datetime | None:
    """When the next one may go; None: now. `moves` are the instants at which the latest did."""
    recent = sorted(at for at in moves if now - at < WITHIN)
    return recent[-AT_ONCE] + WITHIN if len(recent) >= AT_ONCE else None
