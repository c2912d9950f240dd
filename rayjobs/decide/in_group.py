"""A cluster group as a target: the policy chooses among the members (policy.md §2), each with the room that is left."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache

from cluster_groups.decide.choose import Choice, Inquiry, choose_member, inquire, passed_over
from cluster_groups.decide.decision import next_change_of, tell
from cluster_groups.decide.match import accelerator_of, worst_of
from cluster_groups.decide.members import Wish, window_ends_at
from cluster_groups.decide.rank import Offer
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import ClusterGroup
from kernel.reasons import Reason
from rayjobs.decide.pace import AT_ONCE, WITHIN, next_move_at
from rayjobs.decide.room import Ask, Grant, Room, cluster_asks
from rayjobs.decide.world import Full, Kind, Placed, Record, Stuck, World, fits_now, offer
from rayjobs.decide.world import record as told
from rayjobs.snapshot import WaitingRun


class InGroup:
    def __init__(self, group: ClusterGroup, demand: Demand, kind: Kind, world: World) -> None:
        self._group = group
        self._demand = demand
        self._world = world
        self._is_evicted = kind.is_evicted
        wish = Wish(
            match=lambda view: world.unsettled(view) or world.match(view, demand),
            accelerators=demand.gpu_types,
            packages=demand.packages,
            max_runtime_s=kind.max_runtime_s,
            tried=kind.tried,
            opened=kind.opened,
        )
        self._asked: Inquiry = inquire(group, world.survey(group), wish, world.now)
        self._views = {one.name: one.view for one in self._asked.standings if one.view is not None}
        self._rooms = {name: world.cluster(view) for name, view in self._views.items()}
        able = [one.name for one, no in zip(self._asked.standings, self._asked.refusals, strict=True) if no is None]
        self._asks = cluster_asks(demand, {name: self._views[name] for name in able})
        self._known: dict[str, tuple[int, Offer, Grant | None]] = {}
        """By member, as of a version of its room: most of them have not changed when the next run asks."""
        self._full = Full()

    def place(self, run: WaitingRun) -> Placed | Stuck:
        if self._is_evicted and (at := next_move_at(self._world.moves, self._world.now)):
            return self._paced(at)
        version = sum(room.version for room in self._rooms.values())
        return self._full.known(version) or self._full.keep(self._place(run), version)

    def kept(self, name: str) -> tuple[Room, Ask] | None:
        if name not in self._asks:
            return None
        choice = choose_member(self._asked, {one: Offer(running=self._running(one)) for one in self._views}, "")
        return (self._rooms[name], self._asks[name]) if any(one.name == name for one in choice.open) else None

    def _place(self, run: WaitingRun) -> Placed | Stuck:
        found = {name: self._offer(name, run) for name in self._views}
        offers = {name: one for name, (one, _) in found.items()}
        choice = choose_member(self._asked, offers, run.id)
        record = self._record(offers, choice, run.id)
        if choice.chosen is None:
            return self._stuck(choice, record)
        name = choice.chosen.name
        grant = found[name][1]
        assert grant is not None  # noqa: S101 - what is chosen fits
        return Placed(
            room=self._rooms[name],
            grant=grant,
            view=self._views[name],
            record=record,
            policy=self._group.policy,
            window_ends_at=window_ends_at(self._group.policy, choice.chosen.window),
        )

    def _paced(self, until: datetime) -> Stuck:
        params = {"runs": AT_ONCE, "seconds": int(WITHIN.total_seconds())}
        reason = Reason(code="MOVES_PACED", params=params)
        return Stuck(reason=reason, record=told(self._world.now, reason=reason), next_change_at=until)

    def _stuck(self, choice: Choice, record: Record) -> Stuck:
        assert choice.waiting is not None  # noqa: S101 - a choice either chooses or says what is waited for
        able = [one.name for one in choice.open]
        # The decision that is stored with it must not be older than these.
        seen = {
            "members": passed_over(self._asked, choice.refusals),
            "opened": choice.opened,
            "revision": self._group.revision,
        }
        return Stuck(
            reason=replace(choice.waiting, params={**choice.waiting.params, **seen}),
            record=record,
            rooms=tuple((self._rooms[name], self._asks[name], name) for name in able),
            fits=any(fits_now(self._rooms[name], self._asks[name]) for name in able),
            no_room_at=self._world.now if able else None,
            opens_after_s=self._group.policy.spill_after_s * choice.opened if choice.may_spill else None,
            next_change_at=next_change_of(self._asked.standings),
        )

    def _record(self, offers: Mapping[str, Offer], choice: Choice, run: str) -> Record:
        return cache(lambda: tell(self._asked, offers, choice, run).to_json())

    def _offer(self, name: str, run: WaitingRun) -> tuple[Offer, Grant | None]:
        room = self._rooms[name]
        known = self._known.get(name)
        if known is not None and known[0] == room.version and room.hold is None:
            return known[1], known[2]
        found = offer(room, self._asks[name], run, self._world.now) if name in self._asks else None
        grant = found if isinstance(found, Grant) else None
        made = Offer(
            lack=found if isinstance(found, Reason) else None,
            accelerator=self._accelerator(self._views[name], grant),
            load=room.load,
            drivers=room.drivers_load,
            running=self._running(name),
        )
        if room.hold is None:
            self._known[name] = (room.version, made, grant)
        return made, grant

    def _accelerator(self, view: ClusterView, grant: Grant | None) -> str | None:
        wanted = self._demand.gpu_types
        if not wanted:
            return None
        got = worst_of(grant.amount.gpu, wanted) if grant is not None else None
        return got or accelerator_of(view, self._demand)

    def _running(self, name: str) -> int:
        return self._rooms[name].through[self._group.name]
