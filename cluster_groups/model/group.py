"""A cluster group: the single entry to several clusters, and the policy that picks one (policy.md §1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any

MAX_MEMBERS = 50
MAX_WINDOWS = 50
"""Of one member."""
MAX_WEIGHT = 1000
MAX_TIER = 9
EVERY_DAY = (1, 2, 3, 4, 5, 6, 7)
LEASE_TTL_S = 600
"""Unless an installation says otherwise."""
LEASE_MARGIN_S = 90
"""How long after its last lease another attempt of a run may start (design.md, At most one)."""


class Preset(StrEnum):
    """What a group is for: it fills the policy's fields that were not given, and nothing else."""

    FAILOVER = "failover"
    OFF_PEAK = "off_peak"
    HETERO_GPU = "hetero_gpu"
    RANDOM = "random"
    CUSTOM = "custom"


class Rank(StrEnum):
    """Who is first inside a tier."""

    ORDERED = "ordered"
    LEAST_LOADED = "least_loaded"
    WEIGHTED = "weighted"
    """By a hash of run and member, as often as their weights say; the same answer for the same run."""


class WindowMode(StrEnum):
    """What a closed window means."""

    RESTRICT = "restrict"
    """The member takes no work."""
    PREFER = "prefer"
    """It does, one tier later."""


class GpuMatch(StrEnum):
    ANY = "any"
    ORDERED = "ordered"
    """The order of the job's accelerator types comes before that of the members."""


class Failback(StrEnum):
    """When a tier that was left for ill health takes runs again."""

    AUTO = "auto"
    """Once it has been healthy for `failback_stable_s`."""
    MANUAL = "manual"
    """Once somebody made a revision of the policy after it was healthy again: with a comment the same will do."""


class OnClusterLoss(StrEnum):
    FAIL = "fail"
    REDISPATCH = "redispatch"


class OnWindowEnd(StrEnum):
    KEEP = "keep"
    STOP = "stop"


class Effect(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Half-open, in local wall time; one that ends before it starts goes on past midnight and belongs to its start day.

    `days` as ISO counts them, 1 is Monday; `start` and `end` are HH:MM, equal ones are 24 hours.
    """

    days: tuple[int, ...] = EVERY_DAY
    start: str
    end: str
    timezone: str | None = None
    """None: the group's."""
    date_from: date | None = None
    date_to: date | None = None
    """The last day on which it may start."""
    effect: Effect = Effect.OPEN


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    cluster: str
    enabled: bool = True
    cordoned: bool = False
    order: int = 0
    """Position in the list unless given."""
    weight: int = 100
    """0: only if there is no other."""
    tier: int = 0
    windows: tuple[Window, ...] = ()
    """None: always open."""
    max_running: int | None = None
    """Live runs that came to it through this group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    preset: Preset = Preset.FAILOVER
    rank: Rank = Rank.ORDERED
    window_mode: WindowMode = WindowMode.RESTRICT
    spill_after_s: int = 300
    gpu_match: GpuMatch = GpuMatch.ANY
    failback: Failback = Failback.AUTO
    failback_stable_s: int = 600
    on_cluster_loss: OnClusterLoss = OnClusterLoss.FAIL
    lost_timeout_s: int = 900
    on_window_end: OnWindowEnd = OnWindowEnd.KEEP
    max_wait_s: int | None = None
    fit_in_window: bool = False


PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    Preset.FAILOVER: {"rank": Rank.ORDERED, "failback": Failback.AUTO},
    Preset.OFF_PEAK: {"rank": Rank.LEAST_LOADED, "window_mode": WindowMode.RESTRICT, "spill_after_s": 0},
    Preset.HETERO_GPU: {"rank": Rank.LEAST_LOADED, "gpu_match": GpuMatch.ORDERED},
    Preset.RANDOM: {"rank": Rank.WEIGHTED},
    Preset.CUSTOM: {},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterGroup:
    id: str
    name: str
    revision: int
    timezone: str = "UTC"
    description: str = ""
    members: tuple[Member, ...] = ()
    policy: Policy = field(default_factory=Policy)
    revised_at: datetime | None = None
    """When its present revision was saved; None: nobody can tell."""
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
class WindowState:
    """Of one member at one instant. `id` is the place in its list of the window that decided, None: none did."""

    is_open: bool
    id: int | None = None
    until: datetime | None = None
    """When that changes; None: never, as far as anybody looks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One member as a decision saw it: eligible, or the first reason why not (policy.md §2)."""

    cluster: str
    eligible: bool
    reason: str | None = None
    tier: int = 0
    """With the one that a closed window adds, where closed ones only come later."""
    window: WindowState | None = None
    """None: nobody looked, its cluster is not there."""
    health: str | None = None
    load: float | None = None
    """The largest of used/total over CPU, accelerators and memory."""
    fits_now: bool = False
    accelerator: str | None = None
    score: tuple[float | int | str, ...] = ()
    """What it was ranked by, the smaller the earlier."""
    rank: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
