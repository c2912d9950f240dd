"""Which member of a cluster group takes a run now (policy.md §2): filters, tiers, room, rank.

Asked for one run after the other, so what is the same for all runs of a kind is an `Inquiry`, made once. Why it was so,
`decision` tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cluster_groups.decide.members import NEVER, Standing, Wish, refusal_in_round, refusal_of
from cluster_groups.decide.rank import Offer, score_of
from cluster_groups.decide.windows import opens_at
from cluster_groups.model.group import ClusterGroup
from kernel.clock import instant
from kernel.reasons import Owner, Reason

NOTHING = Offer()
_INCOMPATIBLE = frozenset(
    {"ACCESS_DENIED", "REQUIREMENT_MISMATCH", "MOUNT_UNAVAILABLE", "NEVER_FITS", "GANG_NEVER_FITS"}
)
_SWITCHED_OFF = frozenset({"DISABLED", "CLUSTER_MISSING", "CLUSTER_NOT_RUNNING", "CORDONED"})
_CLOSED = frozenset({"WINDOW_CLOSED", "WINDOW_TOO_SHORT"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Inquiry:
    """A kind of runs asks a group at one instant; `refusals` are by the place of the member."""

    group: ClusterGroup
    wish: Wish
    now: datetime
    standings: tuple[Standing, ...]
    refusals: tuple[Reason | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """`waiting` is set exactly when nobody is chosen; `refusals` are all that there are, by the place of the member."""

    chosen: Standing | None
    waiting: Reason | None
    refusals: tuple[Reason | None, ...]
    open: tuple[Standing, ...]
    """Those that the run may have now, be there room or not."""
    tiers: tuple[int, ...]
    """Those with a member that may be chosen, the best first."""
    opened: int
    """How many of them the run may have now."""

    @property
    def open_tiers(self) -> tuple[int, ...]:
        return self.tiers[: self.opened]

    @property
    def may_spill(self) -> bool:
        """There is a tier that waiting for room would open."""
        return self.chosen is None and self.opened < len(self.tiers)


def inquire(group: ClusterGroup, standings: tuple[Standing, ...], wish: Wish, now: datetime) -> Inquiry:
    refusals = tuple(refusal_of(one, group.policy, wish, now) for one in standings)
    return Inquiry(group=group, wish=wish, now=now, standings=standings, refusals=refusals)


def choose_member(asked: Inquiry, offers: Mapping[str, Offer], run: str) -> Choice:
    """`offers` by cluster name, of those that are there."""
    refusals = _held_back(asked, _refusals(asked, offers))
    able = [one for one, refusal in zip(asked.standings, refusals, strict=True) if refusal is None]
    tiers = tuple(sorted({one.tier for one in able}))
    opened = min(len(tiers), 1 + asked.wish.opened)
    able = [one for one in able if one.tier in tiers[:opened]]
    policy, wish = asked.group.policy, asked.wish
    chosen = min(
        (one for one in able if offers[one.name].lack is None),
        key=lambda one: score_of(policy, wish, one, offers[one.name], run),
        default=None,
    )
    waiting = None
    if chosen is None:
        first = min(able, key=lambda one: (one.tier, one.member.order, one.name), default=None)
        waiting = _nobody(asked, refusals) if first is None else offers[first.name].lack
    return Choice(chosen=chosen, waiting=waiting, refusals=refusals, open=tuple(able), tiers=tiers, opened=opened)


def passed_over(asked: Inquiry, refusals: Sequence[Reason | None]) -> dict[str, str]:
    """Why, by name of the member."""
    return {one.name: refusal.code for one, refusal in zip(asked.standings, refusals, strict=True) if refusal}


def _refusals(asked: Inquiry, offers: Mapping[str, Offer]) -> list[Reason | None]:
    """Who was tried is refused only as long as there is somebody else: a run must not wait for ever."""
    both = [
        refusal or refusal_in_round(one, asked.wish, offers.get(one.name, NOTHING).running)
        for one, refusal in zip(asked.standings, asked.refusals, strict=True)
    ]
    if None in both:
        return both
    return [None if one is not None and one.code == "ALREADY_TRIED" else one for one in both]


def _held_back(asked: Inquiry, refusals: Sequence[Reason | None]) -> tuple[Reason | None, ...]:
    """A tier that was left for ill health stays out until it is stable, as long as there is one after it."""
    stable = {
        one.tier
        for one, refusal in zip(asked.standings, refusals, strict=True)
        if refusal is None and one.returns_at is None
    }
    last = max(stable, default=0)
    return tuple(
        _returning(one) if refusal is None and one.tier not in stable and one.tier < last else refusal
        for one, refusal in zip(asked.standings, refusals, strict=True)
    )


def _returning(standing: Standing) -> Reason:
    at = standing.returns_at
    until = None if at is None or at == NEVER else instant(at)
    return Reason(code="FAILBACK_PENDING", params={"cluster": standing.name, "until": until})


def _nobody(asked: Inquiry, refusals: Sequence[Reason | None]) -> Reason:
    """What the run waits for when there is no member it could have (policy.md §5)."""
    told = {"cluster_group": asked.group.name}
    if not refusals:
        return Reason(code="GROUP_EMPTY", owner=Owner.USER, params=told)
    members = passed_over(asked, refusals)
    codes, params = set(members.values()), {**told, "members": members}
    if "MEMBER_LIMIT" in codes:
        return Reason(code="MEMBER_LIMIT", owner=Owner.QUOTA, params={**_first(refusals, "MEMBER_LIMIT"), **params})
    next_open_at = _next_opening(asked, members)
    if codes & _CLOSED and (next_open_at or codes <= _CLOSED):
        closed = {**params, "next_open_at": next_open_at, "max_runtime_s": asked.wish.max_runtime_s}
        return Reason(code="GROUP_WINDOW_CLOSED", owner=Owner.USER, params=closed)
    usable = codes - {"DISABLED", "CLUSTER_MISSING"}
    if usable and usable <= _INCOMPATIBLE:
        return Reason(code="GROUP_NO_COMPATIBLE_MEMBER", owner=Owner.USER, params=params)
    owner = Owner.USER if codes & _SWITCHED_OFF else Owner.PLATFORM
    return Reason(code="GROUP_NO_HEALTHY_MEMBER", owner=owner, params=params)


def _first(refusals: Sequence[Reason | None], code: str) -> dict[str, object]:
    return next(one.params for one in refusals if one is not None and one.code == code)


def _next_opening(asked: Inquiry, members: Mapping[str, str]) -> str | None:
    """Of the first of those that are only closed; None: of none."""
    zone = asked.group.timezone
    closed = [one for one in asked.standings if members[one.name] in _CLOSED]
    opening = [at for one in closed if (at := opens_at(one.member.windows, zone, asked.now))]
    return instant(min(opening)) if opening else None
