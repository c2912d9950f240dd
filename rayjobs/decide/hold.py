"""Keeping a room for the run that has waited long enough at the head of its queue (requirements §2.4).

Its start is projected from the declared limits of those who hold something now. Whoever starts while the room is kept
takes what lies beyond the held run's need at that instant, or has given it back by then: so nobody delays it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime

from cluster_groups.decide.node_pool import NodePool
from cluster_groups.decide.place import spared
from kernel.resources import ANY_GPU
from rayjobs.decide.room import (
    DRIVERS,
    Ask,
    ClusterRoom,
    Free,
    Hold,
    Need,
    Release,
    Room,
    fit,
    need_of,
    subtract,
)


def hold_for(run: str, room: Room, ask: Ask, now: datetime) -> Hold:
    """How the room would be kept for this run."""
    known = [(max(one.ends_by, now), one.run, one) for one in room.releases if one.ends_by is not None]
    ends = [(at, one) for at, _, one in sorted(known, key=lambda end: end[:2])]
    count = _releases_needed(room, ask, [one for _, one in ends])
    start = None if count is None else ends[count - 1][0] if count else now
    free, pool = _after(room, ask, [one for at, one in ends if start is not None and at <= start])
    grant = fit(free, pool, ask)
    if start is None or grant is None:
        return _until_it_starts(run, room, ask)
    subtract(free, grant.need)
    if pool is not None and grant.placement is not None:
        pool.take(grant.placement.by_node)
    return Hold(run, start, free, pool)


def _releases_needed(room: Room, ask: Ask, ends: Sequence[Release]) -> int | None:
    """The least number of those who end first after which it fits; None if not even after all of them."""

    def fits_after(count: int) -> bool:
        free, pool = _after(room, ask, ends[:count])
        return fit(free, pool, ask) is not None

    if not fits_after(len(ends)):
        return None
    return bisect_left(range(len(ends)), x=True, key=fits_after)


def _after(room: Room, ask: Ask, ends: Sequence[Release]) -> tuple[Free, NodePool | None]:
    """What is free once these have ended. Node by node only for a gang: a plain run has no nodes of its own."""
    free = dict(room.free)
    for one in ends:
        for name, amount in one.need:
            free[name] = free.get(name, 0) + amount
    if ask.gang is None or not isinstance(room, ClusterRoom):
        return free, None
    return free, room.pool.after(one.nodes for one in ends)


def _until_it_starts(run: str, room: Room, ask: Ask) -> Hold:
    """Nobody knows when: only what is beyond its need already now stays so, whoever ends first."""
    free = dict(room.free)
    subtract(free, _all_it_may_need(ask, free))
    if ask.gang is None or not isinstance(room, ClusterRoom):
        return Hold(run, None, free, None)
    return Hold(run, None, free, spared(room.pool, room.sizes, ask.gang))


def _all_it_may_need(ask: Ask, free: Free) -> Need:
    """Of each type of accelerators that it might get, all of them."""
    if ask.gang is None:
        return tuple({name: amount for way in ask.ways for name, amount in way}.items())
    needed = {DRIVERS: 1.0, **dict(need_of(ask.gang.resources))}
    anything = needed.pop(f"gpu.{ANY_GPU}", 0)
    kinds = [f"gpu.{name}" for name in ask.gang.gpu_types] or [name for name in free if name.startswith("gpu.")]
    for kind in kinds if anything else ():
        needed[kind] = needed.get(kind, 0) + anything
    return tuple(needed.items())
