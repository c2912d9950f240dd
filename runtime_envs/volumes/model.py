"""Volumes and mounts as values (storage.md §4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class VolumeType(StrEnum):
    COS = "cos"
    S3 = "s3"
    CFS = "cfs"
    CFS_TURBO = "cfs_turbo"
    GOOSEFS = "goosefs"
    NFS = "nfs"
    PVC = "pvc"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewVolume:
    name: str
    type: VolumeType
    source: Mapping[str, str]
    credential: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """It never changes: what it names may be mounted now, and a run that starts again must find the same."""

    id: str
    name: str
    type: VolumeType
    source: Mapping[str, str]
    credential: str | None
    created_at: datetime
    created_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    volume: str
    mount_path: str
    sub_path: str = ""
    read_only: bool = False
