"""What becomes of a run whose attempt has ended: over, tried again, or given back (requirements §2.2, §2.3, A10)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from cluster_groups.model.group import OnClusterLoss
from kernel.clock import instant
from kernel.reasons import Reason
from rayjobs.model.job import Retry
from rayjobs.model.run import End, EndClass, EndCode
from rayjobs.snapshot import WaitingRun

GIVEN_BACK = frozenset({EndCode.GANG_TIMEOUT, EndCode.START_TIMEOUT})
"""A start for which there was no room after all: it costs no attempt, and the run waits again."""
GANG_BACKOFF = "GANG_BACKOFF"
RETRY_BACKOFF = "RETRY_BACKOFF"

CLUSTER_LOSSES = frozenset({EndCode.CLUSTER_LOST, EndCode.HEAD_LOST, EndCode.CLUSTER_DELETED})
"""Ends of whatever ran on one cluster: what follows the policy says (`on_cluster_loss`)."""
_NEVER = frozenset({EndClass.COMPLETED, EndClass.STOPPED, EndClass.TIMEOUT})
_HOPELESS = frozenset({EndCode.PACKAGE_MISSING, EndCode.TARGET_DELETED})
"""The next attempt would end the same way, whatever the class."""

TRANSIENT = frozenset({130, 131, 137, 143, 200, 201, 223, 250, 251, 253})
PERMANENT = frozenset({132, 135, 136, 141, 210, 249, 252, 254, *range(220, 236)}) - {223, 227}
"""Exit codes of processes by the table of requirements §2.3; its negative ones are what end classes tell here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """Bounds of the random pause before the next attempt."""

    least_s: float = 60
    most_s: float = 900


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """`tries` counts the attempts before this one that were not given back."""

    run: str
    epoch: int
    end: End
    tries: int
    retry: Retry
    on_cluster_loss: OnClusterLoss | None = None
    """None: no policy says."""
    is_fenced: bool = False
    """A second attempt does no harm while nobody knows of this one: it has a lease, or is `retry_safe`."""
    is_stopping: bool = False
    """Somebody asked for the run to stop, whatever the attempt ended of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Again:
    """The run waits again, for `reason` until `not_before`; None: only until the attempt is confirmed over."""

    not_before: datetime | None
    counts: bool
    """Whether the attempt that ended counts as one of `max_attempts`."""
    reason: Reason


def decide_retry(ended: Ended, backoff: Backoff, now: datetime) -> Again | None:
    """None: the run is over. A run that is given back may be so for ever, until `max_wait_s` or somebody ends it."""
    end = ended.end
    if ended.is_stopping:
        return None
    if end.code in GIVEN_BACK:
        return _again(GANG_BACKOFF, ended, now + _pause(ended, backoff), counts=False)
    if ended.tries + 1 >= ended.retry.max_attempts or not _may_be_tried(end, ended.retry) or not _may_move(ended):
        return None
    is_paced = end.end_class is not EndClass.LOST and end.code is not EndCode.WINDOW_ENDED
    pause = now + _pause(ended, backoff) if is_paced else None
    return _again(RETRY_BACKOFF, ended, pause, counts=True)


def backing_off(run: WaitingRun) -> Reason:
    """What a run that stays back waits for: as it was told when it went back."""
    known = run.condition
    if known is not None and known.code in {GANG_BACKOFF, RETRY_BACKOFF}:
        told = {} if run.free_from is None else {"not_before": instant(run.free_from)}
        return Reason(code=known.code, params={**known.params, **told})
    until = None if run.not_before is None else instant(run.not_before)
    return Reason(code=RETRY_BACKOFF, params={"because": None, "not_before": until})


def _may_move(ended: Ended) -> bool:
    """What its policy says of the loss of a cluster; without one it goes back to that cluster, once it answers."""
    code, policy = ended.end.code, ended.on_cluster_loss
    if policy is None or code not in CLUSTER_LOSSES:
        return True
    is_confirmed = code is not EndCode.CLUSTER_LOST
    return policy is OnClusterLoss.REDISPATCH and (is_confirmed or ended.is_fenced)


def _may_be_tried(end: End, retry: Retry) -> bool:
    if end.code is EndCode.WINDOW_ENDED:
        return EndClass.LOST in retry.on
    if end.end_class in _NEVER or end.code in _HOPELESS:
        return False
    if end.end_class is not EndClass.USER:
        return end.end_class in retry.on
    if end.code is EndCode.SUBMIT_REFUSED:
        return False
    code = _as_shell_tells(end.exit_code)
    if code in PERMANENT:
        return False
    return EndClass.USER in retry.on or (code in TRANSIENT and EndClass.PLATFORM in retry.on)


def _as_shell_tells(exit_code: int | None) -> int | None:
    """Killed by signal n is 128 + n there, and -n where Python tells it."""
    return 128 - exit_code if exit_code is not None and exit_code < 0 else exit_code


def _again(code: str, ended: Ended, not_before: datetime | None, *, counts: bool) -> Again:
    until = None if not_before is None else instant(not_before)
    params = {"because": str(ended.end.code), "not_before": until}
    return Again(not_before=not_before, counts=counts, reason=Reason(code=code, params=params))


def _pause(ended: Ended, backoff: Backoff) -> timedelta:
    """Random for whoever looks at many runs, and yet the same whenever the same end is judged."""
    digest = sha256(f"{ended.run}-a{ended.epoch}".encode()).digest()
    share = int.from_bytes(digest[:8]) / 2**64
    return timedelta(seconds=backoff.least_s + share * (backoff.most_s - backoff.least_s))
