"""Whether a mount can be had on a cluster that is there (storage.md §6): one rule for saving and for placing."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernel.errors import Problem, problem
from runtime_envs.volumes.model import Mount, VolumeType

MOUNTS_ROOT = "/mnt/muster"
"""Below it the plugin mounts: each run has its own, and finds it by the variable of the volume."""
CARRIED = frozenset({VolumeType.LOCAL, VolumeType.S3, VolumeType.COS, VolumeType.NFS, VolumeType.CFS})
"""What the plugin can mount."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedMount:
    mount: Mount
    type: VolumeType


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """By what ways the nodes of a cluster have volumes."""

    has_plugin: bool
    attached: tuple[Mount, ...] = ()
    """What they have mounted by themselves, and where."""


class Lack(StrEnum):
    VOLUME = "MOUNT_NOT_AVAILABLE_ON_CLUSTER"
    PATH = "MOUNT_PATH_NOT_AVAILABLE"
    READ_ONLY = "MOUNT_NOT_READ_ONLY"


_FIELDS = {Lack.VOLUME: "volume", Lack.PATH: "mount_path", Lack.READ_ONLY: "read_only"}


def lack_of(wanted: WantedMount, site: Site) -> Lack | None:
    """Why it cannot be had there."""
    mount = wanted.mount
    same = [one for one in site.attached if (one.volume, one.sub_path) == (mount.volume, mount.sub_path)]
    there = next((one for one in same if one.mount_path == mount.mount_path), None)
    if there is not None:
        return Lack.READ_ONLY if mount.read_only and not there.read_only else None
    if site.has_plugin and wanted.type in CARRIED:
        return None if mount.mount_path.startswith(f"{MOUNTS_ROOT}/") else Lack.PATH
    return Lack.PATH if same else Lack.VOLUME


def check_available(wanted: Sequence[WantedMount | None], site: Site, cluster: str, pointer: str) -> list[Problem]:
    """`wanted` is in the order of the field that `pointer` names; None: there is no such volume."""
    found = []
    for index, one in enumerate(wanted):
        if one is not None and (lack := lack_of(one, site)):
            found.append(problem(lack, f"{pointer}/{index}/{_FIELDS[lack]}", **_told(one, site, cluster)))
    return found


def _told(wanted: WantedMount, site: Site, cluster: str) -> dict[str, Any]:
    mount = wanted.mount
    paths = [one.mount_path for one in site.attached if one.volume == mount.volume]
    if site.has_plugin and wanted.type in CARRIED:
        paths.append(f"{MOUNTS_ROOT}/…")
    told = {"volume": mount.volume, "type": str(wanted.type), "mount_path": mount.mount_path}
    return {**told, "sub_path": mount.sub_path or "/", "cluster": cluster, "allowed": paths}
