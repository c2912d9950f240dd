"""Why a member was chosen, or none: the record of policy.md §6, less the run. Only made where somebody will see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cluster_groups.decide.choose import NOTHING, Choice, Inquiry
from cluster_groups.decide.members import NEVER, Standing
from cluster_groups.decide.rank import Offer, Score, score_of
from cluster_groups.model.group import Candidate, GpuMatch, Rank, WindowState
from cluster_groups.zones import TZDATA
from kernel.clock import instant
from kernel.reasons import Reason

EVALUATE_EVERY = timedelta(seconds=15)
_FIRST_BY = {
    Rank.ORDERED: "CHOSEN_IN_ORDER",
    Rank.LEAST_LOADED: "CHOSEN_LEAST_LOADED",
    Rank.WEIGHTED: "CHOSEN_BY_WEIGHT",
}


class Outcome(StrEnum):
    DISPATCHED = "dispatched"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`waiting` is set exactly when nothing is chosen."""

    cluster_group: str
    revision: int
    evaluated_at: datetime
    timezone: str
    chosen: str | None
    tier: int | None
    because: tuple[Reason, ...]
    waiting: Reason | None
    next_change_at: datetime | None
    """When time alone may change it: a window, a tier that returns."""
    next_window_change_at: datetime | None
    candidates: tuple[Candidate, ...]

    @property
    def outcome(self) -> Outcome:
        return Outcome.WAITING if self.chosen is None else Outcome.DISPATCHED

    def to_json(self) -> dict[str, Any]:
        again = self.evaluated_at + EVALUATE_EVERY
        again = again if self.next_change_at is None else min(again, self.next_change_at)
        return {
            "cluster_group": self.cluster_group,
            "revision": self.revision,
            "evaluated_at": instant(self.evaluated_at),
            "timezone": self.timezone,
            "tzdata": TZDATA,
            "outcome": str(self.outcome),
            "chosen": self.chosen,
            "tier": self.tier,
            "because": [one.told for one in self.because],
            "reason": self.waiting.told if self.waiting else None,
            "next_evaluation_at": instant(again) if self.chosen is None else None,
            "next_window_change_at": _told(self.next_window_change_at),
            "candidates": [_candidate_json(one) for one in self.candidates],
        }


def tell(asked: Inquiry, offers: Mapping[str, Offer], choice: Choice, run: str) -> Decision:
    """`offers` as they were when it was chosen."""
    chosen, group = choice.chosen, asked.group
    candidates = _candidates(asked, offers, choice, None if chosen is None else run)
    changes = [one.window.until for one in asked.standings if one.member.enabled and one.window.until is not None]
    return Decision(
        cluster_group=group.name,
        revision=group.revision,
        evaluated_at=asked.now,
        timezone=group.timezone,
        chosen=None if chosen is None else chosen.name,
        tier=None if chosen is None else chosen.tier,
        because=_because(asked, choice, candidates),
        waiting=choice.waiting,
        next_change_at=next_change_of(asked.standings),
        next_window_change_at=min(changes, default=None),
        candidates=candidates,
    )


def next_change_of(standings: Sequence[Standing]) -> datetime | None:
    """When time alone changes something for whoever waits."""
    windows = (one.window.until for one in standings if one.member.enabled)
    returns = (one.returns_at for one in standings if one.returns_at != NEVER)
    return min((at for at in (*windows, *returns) if at is not None), default=None)


def _candidates(asked: Inquiry, offers: Mapping[str, Offer], choice: Choice, run: str | None) -> tuple[Candidate, ...]:
    """In the order of the group. Ranked are those that may be chosen, tier by tier, and with room or not."""
    policy, wish = asked.group.policy, asked.wish
    scores: dict[str, Score] = {
        one.name: score_of(policy, wish, one, offers[one.name], run)
        for one, refusal in zip(asked.standings, choice.refusals, strict=True)
        if refusal is None
    }
    ranks = {name: rank for rank, name in enumerate(sorted(scores, key=scores.__getitem__), start=1)}
    return tuple(
        Candidate(
            cluster=one.name,
            eligible=refusal is None,
            reason=refusal.code if refusal else None,
            tier=one.tier,
            window=one.window,
            health=str(one.view.health) if one.view else None,
            load=offers[one.name].load if one.name in offers else None,
            fits_now=refusal is None and offers[one.name].lack is None,
            accelerator=offers.get(one.name, NOTHING).accelerator,
            score=scores.get(one.name, ()),
            rank=ranks.get(one.name),
            facts=_facts(refusal, offers.get(one.name, NOTHING).lack),
        )
        for one, refusal in zip(asked.standings, choice.refusals, strict=True)
    )


def _facts(refusal: Reason | None, lack: Reason | None) -> dict[str, Any]:
    if refusal is not None:
        return dict(refusal.params)
    return {} if lack is None else {"lacks": lack.code, **lack.params}


def _because(asked: Inquiry, choice: Choice, candidates: Sequence[Candidate]) -> tuple[Reason, ...]:
    """Sentence by sentence."""
    passed = {one.cluster: one.reason or one.facts["lacks"] for one in candidates if _is_passed_over(one, choice)}
    if choice.chosen is None:
        none = (Reason(code="NO_MEMBER_CAN", params={"members": passed}),) if candidates else ()
        return (*none, *_spill(asked, choice))
    (chosen,) = [one for one in candidates if one.cluster == choice.chosen.name]
    equal = [one for one in candidates if one.fits_now and one.score[:2] == chosen.score[:2]]  # in tier and accelerator
    params = {"cluster": chosen.cluster, "equal": len(equal), "tier": chosen.tier}
    first = Reason(code=_FIRST_BY[asked.group.policy.rank], params=params)
    over = (Reason(code="PASSED_OVER", params={"members": passed}),) if passed else ()
    return (first, *_best_type(asked, chosen), *_spill(asked, choice), *over)


def _best_type(asked: Inquiry, chosen: Candidate) -> tuple[Reason, ...]:
    ordered = asked.group.policy.gpu_match is GpuMatch.ORDERED and asked.wish.accelerators
    if not ordered or not chosen.accelerator:
        return ()
    return (Reason(code="BEST_TYPE", params={"accelerator": chosen.accelerator}),)


def _is_passed_over(one: Candidate, choice: Choice) -> bool:
    """All that cannot take it, in tiers that are open to it."""
    return not one.fits_now and (not one.eligible or one.tier in choice.open_tiers)


def _spill(asked: Inquiry, choice: Choice) -> tuple[Reason, ...]:
    after_s = asked.group.policy.spill_after_s
    if choice.may_spill:
        following = {"tier": choice.tiers[choice.opened], "after_s": after_s * choice.opened}
        return (Reason(code="TIER_OPENS_AFTER", params=following),)
    if choice.chosen is None or choice.chosen.tier == choice.tiers[0]:
        return ()
    tier, full = choice.chosen.tier, choice.tiers[0]
    if not after_s:
        return (Reason(code="TIER_OPEN_AT_ONCE", params={"tier": tier, "full": full}),)
    waited_s = after_s * choice.tiers.index(tier)
    return (Reason(code="TIER_OPENED", params={"tier": tier, "full": full, "after_s": waited_s}),)


def _candidate_json(one: Candidate) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in Candidate.__dataclass_fields__}
    return {**plain, "window": _window_json(one.window), "score": list(one.score)}


def _window_json(window: WindowState | None) -> dict[str, Any] | None:
    if window is None:
        return None
    return {"state": "open" if window.is_open else "closed", "id": window.id, "until": _told(window.until)}


def _told(at: datetime | None) -> str | None:
    return None if at is None else instant(at)
