"""What makes the policy of a cluster group acceptable in itself, and how a preset fills the fields left out."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from cluster_groups.check import check_bounds
from cluster_groups.decide.windows import is_ever_open, occurs
from cluster_groups.model.group import (
    EVERY_DAY,
    LEASE_MARGIN_S,
    LEASE_TTL_S,
    MAX_MEMBERS,
    MAX_TIER,
    MAX_WEIGHT,
    MAX_WINDOWS,
    PRESETS,
    ClusterGroup,
    Failback,
    GpuMatch,
    Member,
    OnClusterLoss,
    OnWindowEnd,
    Policy,
    PolicyDraft,
    PolicyRevision,
    Preset,
    Rank,
    Window,
    WindowMode,
)
from cluster_groups.zones import is_zone
from kernel.errors import Problem, pointer_to, problem

MAX_SECONDS = 2**31 - 1
MAX_TEXT = 2000

_CHOICES: Mapping[str, type[StrEnum]] = {
    "preset": Preset,
    "rank": Rank,
    "window_mode": WindowMode,
    "gpu_match": GpuMatch,
    "failback": Failback,
    "on_cluster_loss": OnClusterLoss,
    "on_window_end": OnWindowEnd,
}
_BOUNDS = {"spill_after_s": 0, "failback_stable_s": 0, "lost_timeout_s": 10, "max_wait_s": 1}
_FIELDS = frozenset(field.name for field in fields(Policy))
_WALL = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


def check_draft(draft: PolicyDraft, *, lease_ttl_s: int = LEASE_TTL_S) -> list[Problem]:
    return [
        *_check_timezone(draft.timezone, "/timezone"),
        *_check_members(draft.members),
        *_check_policy(draft.policy, lease_ttl_s),
        *check_text("/comment", draft.comment),
    ]


def check_text(pointer: str, text: str) -> list[Problem]:
    return [problem("TEXT_TOO_LONG", pointer, maximum=MAX_TEXT)] if len(text) > MAX_TEXT else []


def policy_of(given: Mapping[str, Any]) -> Policy:
    """For fields that passed `check_draft`; what nobody gave is as the preset has it, and else as Policy does."""
    sent = {name: value for name, value in given.items() if value is not None}
    chosen = {name: kind(sent[name]) for name, kind in _CHOICES.items() if name in sent}
    preset = PRESETS[Preset(sent.get("preset", Preset.FAILOVER))]
    return Policy(**{**preset, **sent, **chosen})


def warnings_about(policy: ClusterGroup | PolicyRevision, group: str, now: datetime) -> list[Problem]:
    """That nothing would ever be chosen, however well the clusters are. `group` is its name."""
    if not policy.members:
        return [problem("GROUP_EMPTY", "/members", cluster_group=group)]
    never = {one.cluster: why for one in policy.members if (why := _why_never(one, policy, now)) is not None}
    if len(never) < len(policy.members):
        return []
    return [problem("POLICY_NEVER_CHOOSES", "/members", members=never, count=len(never))]


def _why_never(member: Member, policy: ClusterGroup | PolicyRevision, now: datetime) -> str | None:
    if not member.enabled:
        return "DISABLED"
    if member.cordoned:
        return "CORDONED"
    if policy.policy.window_mode is WindowMode.PREFER or is_ever_open(member.windows, policy.timezone, now):
        return None
    return "WINDOW_CLOSED"


def _check_timezone(name: str, pointer: str) -> list[Problem]:
    return [] if is_zone(name) else [problem("UNKNOWN_TIMEZONE", pointer, timezone=name)]


def _check_members(members: Sequence[Member]) -> list[Problem]:
    if len(members) > MAX_MEMBERS:
        return [problem("TOO_MANY_MEMBERS", "/members", count=len(members), maximum=MAX_MEMBERS)]
    names = [member.cluster for member in members]
    twice = [
        problem("DUPLICATE_MEMBER", f"/members/{index}/cluster", cluster=name)
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    return twice + [found for index, one in enumerate(members) for found in _check_member(one, f"/members/{index}")]


def _check_member(member: Member, pointer: str) -> list[Problem]:
    windows = member.windows
    found = [
        *check_bounds(pointer, {"weight": member.weight}, maximum=MAX_WEIGHT),
        *check_bounds(pointer, {"tier": member.tier}, maximum=MAX_TIER),
        *check_bounds(pointer, {"max_running": member.max_running}, minimum=1),
    ]
    if len(windows) > MAX_WINDOWS:
        too_many = problem("TOO_MANY_WINDOWS", f"{pointer}/windows", count=len(windows), maximum=MAX_WINDOWS)
        return [*found, too_many]
    return found + [
        one for at, window in enumerate(windows) for one in _check_window(window, f"{pointer}/windows/{at}")
    ]


def _check_window(window: Window, pointer: str) -> Iterator[Problem]:
    if window.timezone is not None:
        yield from _check_timezone(window.timezone, f"{pointer}/timezone")
    for name in ("start", "end"):
        if not _WALL.fullmatch(getattr(window, name)):
            yield problem("WINDOW_TIME_INVALID", f"{pointer}/{name}", value=getattr(window, name))
    days = Counter(window.days)
    if not days or not days.keys() <= set(EVERY_DAY) or days.total() > len(days):
        yield problem("WINDOW_DAYS_INVALID", f"{pointer}/days", days=list(window.days))
    elif window.date_from is not None and window.date_to is not None and window.date_to < window.date_from:
        params = {"date_from": str(window.date_from), "date_to": str(window.date_to)}
        yield problem("WINDOW_DATES_INVERTED", f"{pointer}/date_to", **params)
    elif not occurs(window):
        yield problem("WINDOW_EMPTY", pointer, days=list(window.days))


def _check_policy(given: Mapping[str, Any], lease_ttl_s: int) -> list[Problem]:
    unknown = sorted(given.keys() - _FIELDS)
    found = [problem("UNKNOWN_FIELD", pointer_to("policy", name), field=name) for name in unknown]
    for name, there in _CHOICES.items():
        value = given.get(name)
        if value is not None and value not in list(there):
            params = {"field": name, "value": value, "available": list(there)}
            found.append(problem("POLICY_VALUE_NOT_AVAILABLE", f"/policy/{name}", **params))
    for name, minimum in _BOUNDS.items():
        found += check_bounds("/policy", {name: given.get(name)}, minimum=minimum, maximum=MAX_SECONDS)
    return found or _check_loss(policy_of(given), lease_ttl_s)


def _check_loss(policy: Policy, lease_ttl_s: int) -> list[Problem]:
    """Else the run would be given up as lost before another attempt may start."""
    least = lease_ttl_s + LEASE_MARGIN_S
    if policy.on_cluster_loss is not OnClusterLoss.REDISPATCH or policy.lost_timeout_s >= least:
        return []
    params = {"lost_timeout_s": policy.lost_timeout_s, "minimum": least, "lease_ttl_s": lease_ttl_s}
    return [problem("LOST_TIMEOUT_TOO_SHORT", "/policy/lost_timeout_s", **params)]
