"""Which attempts run under a lease, and which may go on doing so (design.md, "At most one")."""

from cluster_groups.model.group import OnClusterLoss, Policy
from rayjobs.model.job import Retry, RunMode
from rayjobs.model.run import AttemptState, EndClass

RENEWABLE = frozenset(
    {AttemptState.POSTING, AttemptState.PENDING, AttemptState.PLACING, AttemptState.RUNNING, AttemptState.STOPPING}
)
"""POSTING, too: a runner may ask before its submission was answered. STOPPING: whoever is to stop has its grace."""


def lease_ttl_of(
    *,
    run_mode: RunMode,
    policy: Policy | None,
    retry: Retry,
    tries: int,
    can_call_back: bool,
    ttl_s: int | None,
) -> int | None:
    """For an attempt that is being placed; None: no lease, and so nothing that happens to Muster ends it.

    `policy` is the one it is placed by, `tries` counts the attempts before it, `can_call_back` is of its cluster, and
    `ttl_s` what this installation gives: None where clusters have no address to call.
    """
    may_move = (
        run_mode is RunMode.CLUSTER_GROUP
        and policy is not None
        and policy.on_cluster_loss is OnClusterLoss.REDISPATCH
        and EndClass.LOST in retry.on
        and tries + 1 < retry.max_attempts
    )
    return ttl_s if may_move and can_call_back else None


def may_renew(*, state: AttemptState, epoch: int, latest_epoch: int, is_stopping: bool, has_grace: bool) -> bool:
    """Whether an attempt that has a lease is still the one its run is to go on as.

    One that is to stop has its grace, as no other begins before it has stopped; not so one that has not begun, nor
    one whose cluster cannot be told: then this is how its runner hears of it.
    """
    return state in RENEWABLE and epoch == latest_epoch and (has_grace or not is_stopping)
