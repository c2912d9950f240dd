"""What makes the policy of a cluster group acceptable in itself, and how a preset fills the fields left out."""

import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from cluster_groups.check import check_bounds
from cluster_groups.model.group import MAX_MEMBERS, Member, Policy, PolicyDraft, Preset, Rank
from kernel.errors import Problem, pointer_to, problem

MAX_SECONDS = 2**31 - 1
MAX_TEXT = 2000

_CHOICES = {
    "preset": (Preset, "POLICY_PRESET_NOT_AVAILABLE"),
    "rank": (Rank, "POLICY_RANK_NOT_AVAILABLE"),
}
_BOUNDS = {"lost_timeout_s": 10, "max_wait_s": 1}
_FIELDS = frozenset(field.name for field in fields(Policy))


def check_draft(draft: PolicyDraft) -> list[Problem]:
    return [
        *_check_timezone(draft.timezone),
        *_check_members(draft.members),
        *_check_policy(draft.policy),
        *check_text("/comment", draft.comment),
    ]


def check_text(pointer: str, text: str) -> list[Problem]:
    return [problem("TEXT_TOO_LONG", pointer, maximum=MAX_TEXT)] if len(text) > MAX_TEXT else []


def policy_of(given: Mapping[str, Any]) -> Policy:
    """For fields that passed `check_draft`; the preset `failover` fills in the defaults of Policy."""
    filled = {name: value for name, value in given.items() if value is not None}
    for name, (kind, _) in _CHOICES.items():
        if name in filled:
            filled[name] = kind(filled[name])
    return Policy(**filled)


def _check_timezone(name: str) -> list[Problem]:
    if name == "UTC":
        return []
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):  # OSError: the name of a folder of zones
        return [problem("UNKNOWN_TIMEZONE", "/timezone", timezone=name)]
    return []


def _check_members(members: Sequence[Member]) -> list[Problem]:
    if len(members) > MAX_MEMBERS:
        return [problem("TOO_MANY_MEMBERS", "/members", count=len(members), maximum=MAX_MEMBERS)]
    names = [member.cluster for member in members]
    return [
        problem("DUPLICATE_MEMBER", f"/members/{index}/cluster", cluster=name)
        for index, name in enumerate(names)
        if name in names[:index]
    ]


def _check_policy(given: Mapping[str, Any]) -> list[Problem]:
    unknown = sorted(given.keys() - _FIELDS)
    found = [problem("UNKNOWN_FIELD", pointer_to("policy", name), field=name) for name in unknown]
    for name, (there, code) in _CHOICES.items():
        value = given.get(name)
        if value is not None and value not in list(there):
            found.append(problem(code, f"/policy/{name}", value=value, available=list(there)))
    for name, minimum in _BOUNDS.items():
        found += check_bounds("/policy", {name: given.get(name)}, minimum=minimum, maximum=MAX_SECONDS)
    return found
