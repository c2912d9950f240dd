"""What an attempt takes along to the nodes of its cluster that Ray does not carry: volumes, and packages too large.

Pure. Nothing of it is secret: what is, the nodes ask for themselves (`node_needs`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rayjobs.model.run import End, EndClass, EndCode
from runtime_envs.model import Package
from runtime_envs.node_plugin import terms
from runtime_envs.volumes.available import MOUNTS_ROOT, Site, WantedMount, lack_of
from runtime_envs.volumes.model import Mount, Volume

RAY_PACKAGE_LIMIT_BYTES = 100 * 1024**2
"""What a cluster's own Jobs API takes, inclusive."""


class CannotSubmit(Exception):
    """Nothing that another try on the same cluster would change."""

    def __init__(self, end: End) -> None:
        super().__init__(end.code)
        self.end = end


@dataclass(frozen=True, kw_only=True, slots=True)
class Carrier:
    """How things get to the nodes of one cluster."""

    cluster: str
    site: Site
    callback: str | None
    """Where its nodes reach Muster."""
    for_all: tuple[Mount, ...] = ()
    """What the plugin mounts for each attempt there, whatever its job says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cargo:
    """What is added to the attempt's runtime_env."""

    keys: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def carry_package(attempt: str, package: Package, carrier: Carrier) -> Cargo:
    """One that is larger than Ray takes."""
    if not carrier.site.has_plugin:
        raise _impossible(
            EndCode.PACKAGE_TOO_LARGE_FOR_CLUSTER,
            package=package.id,
            size_mib=-(-package.size_bytes // 2**20),
            cluster=carrier.cluster,
        )
    _need_callback(carrier, f"package {package.id}")
    content = terms.PackageTerms(package.sha256, package.size_bytes)
    return Cargo(keys={terms.PACKAGE_KEY: terms.package_field(terms.Origin(attempt, carrier.callback), content)})


def carry_mounts(attempt: str, wanted: Sequence[Mount], volumes: Mapping[str, Volume], carrier: Carrier) -> Cargo:
    """`volumes` by name: those of `all_mounts`."""
    mounts = all_mounts(wanted, carrier)
    for mount in mounts:
        volume = volumes.get(mount.volume)
        if volume is None or lack_of(WantedMount(mount=mount, type=volume.type), carrier.site):
            raise _impossible(EndCode.MOUNT_IMPOSSIBLE, volume=mount.volume, cluster=carrier.cluster)
    if not carrier.site.has_plugin or not mounts:
        first = reversed(mounts)  # of a volume that is mounted twice
        return Cargo(variables={terms.mount_variable(one.volume): one.mount_path for one in first})
    told = [_told(one, volumes[one.volume]) for one in mounts]
    secret = next((one.volume for one in told if one.needs_credential), None)
    if secret is not None:
        _need_callback(carrier, f"volume {secret}")
    return Cargo(keys={terms.MOUNTS_KEY: terms.mounts_field(terms.Origin(attempt, carrier.callback), told)})


def all_mounts(wanted: Sequence[Mount], carrier: Carrier) -> list[Mount]:
    """The job's own, and where the plugin mounts for each attempt those of its cluster that are in nobody's way."""
    own = [f"{mount.mount_path}/" for mount in wanted]
    return [*wanted, *(mount for mount in carrier.for_all if not _is_in_the_way(f"{mount.mount_path}/", own))]


def _is_in_the_way(path: str, others: Sequence[str]) -> bool:
    return any(path.startswith(other) or other.startswith(path) for other in others)


def _told(mount: Mount, volume: Volume) -> terms.Mount:
    return terms.Mount(
        volume=volume.name,
        type=str(volume.type),
        source=dict(volume.source),
        path=mount.mount_path.removeprefix(f"{MOUNTS_ROOT}/"),
        sub_path=mount.sub_path,
        read_only=mount.read_only,
        needs_credential=volume.credential is not None,
    )


def _need_callback(carrier: Carrier, needed: str) -> None:
    if carrier.callback is None:
        raise _impossible(EndCode.CALLBACK_NEEDED, needed=needed, cluster=carrier.cluster)


def _impossible(code: EndCode, **params: object) -> CannotSubmit:
    return CannotSubmit(End(end_class=EndClass.ENVIRONMENT, code=code, params=params))
