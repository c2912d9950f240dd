"""Records of decisions (policy.md §6), stored or only asked about: their codes get words in the caller's language."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel

from api.conditions import condition_words
from api.texts import Language, say
from kernel.reasons import Reason


class WindowStateOut(BaseModel):
    """`id` is the place of the window that decided, in the member's list; `until` is when the state changes."""

    state: str
    id: int | None = None
    until: datetime | None = None


class DecisionReasonOut(BaseModel):
    code: str
    detail: str
    advice: str | None = None
    params: dict[str, Any] = {}


class CandidateOut(BaseModel):
    """A member as the decision saw it; `reason` is the first filter that it failed, `facts` are the numbers to it."""

    cluster: str
    eligible: bool
    reason: str | None = None
    message: str | None = None
    tier: int | None = None
    window: WindowStateOut | None = None
    health: str | None = None
    load: float | None = None
    fits_now: bool = False
    accelerator: str | None = None
    score: list[Any] = []
    rank: int | None = None
    facts: dict[str, Any] = {}

    @classmethod
    def of(cls, record: Mapping[str, Any], language: Language) -> "CandidateOut":
        """What has no room now is eligible all the same, and says what it lacks."""
        facts = record.get("facts") or {}
        code = record.get("reason") or facts.get("lacks")
        words = condition_words(Reason(code=code, params=facts), language) if code else None
        return cls(**{**record, "message": words.detail if words else None})


class DecisionOut(BaseModel):
    """In modes without a group there is nothing to choose from: no revision, no candidates."""

    run: str | None = None
    cluster_group: str | None = None
    revision: int | None = None
    evaluated_at: datetime
    timezone: str | None = None
    tzdata: str | None = None
    """Version of the rules of time zones that windows were looked up by."""
    outcome: str
    chosen: str | None = None
    tier: int | None = None
    because: str | None = None
    reason: DecisionReasonOut | None = None
    next_evaluation_at: datetime | None = None
    next_window_change_at: datetime | None = None
    candidates: list[CandidateOut] = []

    @classmethod
    def of(cls, record: Mapping[str, Any], language: Language, **more: Any) -> Self:
        candidates = [CandidateOut.of(one, language) for one in record.get("candidates") or ()]
        worded = {
            "because": in_words(record["because"], language),
            "reason": _worded(record.get("reason"), language),
            "candidates": candidates,
        }
        return cls(**{**record, **worded, **more})


def in_words(sentences: Sequence[Mapping[str, Any]], language: Language) -> str | None:
    gap = " " if language is Language.EN else ""
    return gap.join(say(one["code"], one["params"], language).detail for one in sentences) or None


def _worded(reason: Mapping[str, Any] | None, language: Language) -> DecisionReasonOut | None:
    if reason is None:
        return None
    words = condition_words(Reason(code=reason["code"], params=reason["params"]), language)
    return DecisionReasonOut(detail=words.detail, advice=words.advice, **reason)
