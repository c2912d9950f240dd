"""What the probes of a cluster add up to (policy.md §3)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kernel.reasons import Reason


class HealthStatus(StrEnum):
    PENDING = "PENDING"
    """Not yet seen to pass since it was made, started or edited."""
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    UNKNOWN = "UNKNOWN"
    """No result for a while: no new work, nothing moved away either."""
    FLAPPING = "FLAPPING"


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedSubmit:
    """An attempt could not be sent there, or not begin there, for reasons of the cluster's."""

    at: datetime
    attempt: str
    why: str
    """A few words of ours: the cluster's own may repeat what a user wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """A verdict with what it was judged from, so that the next one can be a plain function of this and a new result.

    `passes` and `misses` count in a row; `passing_since` is the first pass of the present row of passes;
    `changes` are the instants of the last changes between HEALTHY and UNHEALTHY.
    """

    status: HealthStatus = HealthStatus.PENDING
    since: datetime
    last_result_at: datetime | None = None
    passes: int = 0
    misses: int = 0
    passing_since: datetime | None = None
    changes: tuple[datetime, ...] = ()
    failure: Reason | None = None
    """What the latest look found wrong."""
    because: Reason | None = None
    """Why it is not HEALTHY, although its looks may pass again; None while it is."""
    recovered_at: datetime | None = None
    """When it was last HEALTHY again after it was ill; None: it never was, since somebody last stopped its cluster."""
    failed_submits: tuple[FailedSubmit, ...] = ()
    """Of late, one for each attempt."""
    listed_at: datetime | None = None
    """When its jobs were last listed, as they should."""
    before_unknown: HealthStatus | None = None
    """What it was when results stayed away, and is again once one comes."""
    was_ill: bool = False
    """Or its cluster failed, before it was looked at anew: so it is until the first verdict."""

    @property
    def finding(self) -> Reason | None:
        """What to tell people who ask why it takes no work."""
        return self.failure or self.because
