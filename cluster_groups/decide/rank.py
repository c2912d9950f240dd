"""Who is first of the members that a run may have (policy.md §2, 3 to 7): a score, the smaller the earlier."""

from dataclasses import dataclass
from hashlib import blake2b
from math import log

from cluster_groups.decide.members import Standing, Wish
from cluster_groups.model.group import GpuMatch, Member, Policy, Rank
from kernel.reasons import Reason

Score = tuple[float | int | str, ...]

_STEPS = 2**64


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What a member has for the run now; `lack` says what it waits for there, None: it fits."""

    lack: Reason | None = None
    accelerator: str | None = None
    """The type it would get there, or could get were the cluster idle; None: it names none."""
    load: float = 0
    """The largest of used/total over CPU, accelerators and memory."""
    drivers: float = 0
    """The same of what its head bears: what runs that declare nothing differ by."""
    running: int = 0
    """Live runs that came there through this group."""


def score_of(policy: Policy, wish: Wish, standing: Standing, offer: Offer, run: str | None) -> Score:
    """`run` None: weights do not count, as they say something of one run only."""
    member = standing.member
    ranked: Score = (member.order,)
    if policy.rank is Rank.LEAST_LOADED:
        ranked = (offer.load, offer.drivers)
    elif policy.rank is Rank.WEIGHTED:
        ranked = () if run is None else (member.weight == 0, _drawn(run, member))
    accelerator = _accelerator(policy, wish, offer)
    return (standing.tier, accelerator, *ranked, offer.load, member.order, member.cluster)


def _accelerator(policy: Policy, wish: Wish, offer: Offer) -> int:
    if policy.gpu_match is not GpuMatch.ORDERED or not wish.accelerators:
        return 0
    known = offer.accelerator in wish.accelerators
    return wish.accelerators.index(offer.accelerator) if known and offer.accelerator else len(wish.accelerators)


def _drawn(run: str, member: Member) -> float:
    """Rendezvous hashing: each member draws by itself, so one that comes or goes moves no run between the others."""
    drawn = int.from_bytes(blake2b(f"{run}/{member.cluster}".encode(), digest_size=8).digest())
    return -log((drawn + 0.5) / _STEPS) / (member.weight or 1)
