"""Whether a cluster is of the kind, and could ever be of the size, that a run asks for."""

from collections.abc import Iterable

from cluster_groups.decide.place import never_fits
from cluster_groups.model.cluster import site_of
from cluster_groups.model.demand import ClusterView, Demand
from kernel.reasons import Owner, Reason
from runtime_envs.volumes.available import lack_of


def match_cluster(view: ClusterView, demand: Demand) -> Reason | None:
    """Why this cluster, even idle, could not take such a run."""
    if reason := mismatch(view, demand):
        return reason
    return never_fits(view, demand) if demand.bundles else _never_fits(view, demand)


def mismatch(view: ClusterView, demand: Demand) -> Reason | None:
    """Why this cluster, however large, is not of the kind that was asked for."""
    if demand.gpu_types and not view.capacity.gpu.keys() & set(demand.gpu_types):
        return _differs(view, "gpu_types", list(demand.gpu_types), sorted(view.capacity.gpu))
    for key, wanted in demand.labels.items():
        if view.labels.get(key) != wanted:
            return _differs(view, f"label {key}", wanted, view.labels.get(key))
    for name in ("ray_version", "python_version"):
        wanted, has = getattr(demand, name), getattr(view, name)
        if wanted is not None and not _is_version(has, wanted):
            return _differs(view, name, wanted, has)
    return _without_mounts(view, demand) if demand.mounts else None


def accelerator_of(view: ClusterView, demand: Demand) -> str | None:
    """The first type of those it asks for that the cluster has enough of, idle; None: it asks for none by name."""
    cards = sum(demand.resources.gpu.values()) if not demand.bundles else 1
    return next((name for name in demand.gpu_types if view.capacity.gpu.get(name, 0) >= cards), None)


def worst_of(granted: Iterable[str], wanted: tuple[str, ...]) -> str | None:
    """Of the types a run would get the one it asked for last."""
    return max((name for name in granted if name in wanted), key=wanted.index, default=None)


def _without_mounts(view: ClusterView, demand: Demand) -> Reason | None:
    site = site_of(view.kind, view.mounts)
    missing = sorted({one.mount.volume for one in demand.mounts if lack_of(one, site)})
    if not missing:
        return None
    return Reason(code="MOUNT_UNAVAILABLE", owner=Owner.USER, params={"cluster": view.name, "volumes": missing})


def _differs(view: ClusterView, what: str, wanted: object, has: object) -> Reason:
    params = {"cluster": view.name, "what": what, "wanted": wanted, "has": has}
    return Reason(code="REQUIREMENT_MISMATCH", owner=Owner.USER, params=params)


def _is_version(has: str | None, wanted: str) -> bool:
    """Asking for 3.11 takes any 3.11.x."""
    return has is not None and f"{has}.".startswith(f"{wanted}.")


def _never_fits(view: ClusterView, demand: Demand) -> Reason | None:
    asked, there = demand.resources, view.capacity
    pairs = {"cpu": (asked.cpu, there.cpu), "memory_gib": (asked.memory_gib, there.memory_gib)}
    cards = sum(asked.gpu.values())
    if cards:
        # One run takes accelerators of one type: the largest stock among those it accepts counts.
        accepted = demand.gpu_types or tuple(there.gpu)
        pairs["gpu"] = (cards, max((there.gpu.get(name, 0) for name in accepted), default=0))
    short = {name: {"wanted": wanted, "total": total} for name, (wanted, total) in pairs.items() if wanted > total}
    if not short:
        return None
    return Reason(code="NEVER_FITS", owner=Owner.USER, params={"cluster": view.name, "short": short})
