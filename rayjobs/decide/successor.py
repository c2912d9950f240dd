"""When another attempt may start although the one before it is not confirmed over (design.md, "At most one")."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cluster_groups.model.group import LEASE_MARGIN_S, OnClusterLoss
from rayjobs.model.run import EndCode

AFTER_LEASE = timedelta(seconds=LEASE_MARGIN_S)
"""By then every guard has ended what ran under the lease, however its clock and its grace were."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """An attempt that is over as far as its run goes: no renewal of its lease is accepted any more.

    Whether it is over on its cluster nobody knows.
    """

    since: datetime
    end_code: EndCode
    on_cluster_loss: OnClusterLoss | None
    lease_ttl_s: int | None
    lease_until: datetime | None


def free_from(earlier: Earlier) -> datetime | None:
    """None: only once it is confirmed over."""
    if earlier.lease_ttl_s is not None:
        until = earlier.lease_until
        return earlier.since if until is None else until + AFTER_LEASE
    moves = earlier.on_cluster_loss is OnClusterLoss.REDISPATCH and earlier.end_code is EndCode.CLUSTER_LOST
    return earlier.since if moves else None  # without a lease only `retry_safe` lets it come to this


def latest(instants: Sequence[datetime | None]) -> datetime | None:
    """Of several that are not over; None as soon as one of them has to be."""
    known = [one for one in instants if one is not None]
    return max(known) if len(known) == len(instants) else None
