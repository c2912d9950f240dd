"""A cluster group: the single entry to several clusters, and the policy that picks one (policy.md §1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

MAX_MEMBERS = 50


class Preset(StrEnum):
    """A preset only fills the policy's other fields; the rest of policy.md's presets come with their issue."""

    FAILOVER = "failover"


class Rank(StrEnum):
    ORDERED = "ordered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    cluster: str
    enabled: bool = True
    cordoned: bool = False
    order: int = 0
    """Position in the list unless given; the first that can take a run gets it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    preset: Preset = Preset.FAILOVER
    rank: Rank = Rank.ORDERED
    lost_timeout_s: int = 900
    max_wait_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterGroup:
    id: str
    name: str
    revision: int
    timezone: str = "UTC"
    description: str = ""
    members: tuple[Member, ...] = ()
    policy: Policy = field(default_factory=Policy)
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyDraft:
    """What a person asks for. `policy` holds only the fields that were given: a preset fills the others."""

    timezone: str = "UTC"
    members: tuple[Member, ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRevision:
    """One revision of a group's policy; the same content is never stored twice in a row."""

    revision: int
    timezone: str
    members: tuple[Member, ...]
    policy: Policy
    comment: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One member as a decision saw it: eligible, or the first reason why not (policy.md §2)."""

    cluster: str
    eligible: bool
    reason: str | None = None
    fits_now: bool = False
    rank: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
