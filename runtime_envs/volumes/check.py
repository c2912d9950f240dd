"""What makes volumes and mounts acceptable in themselves (storage.md §4).

A driver of Kubernetes joins attributes into one line that a shell on the node runs, and others join them into lists of
options: so each has its own narrow shape, whatever the type.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from urllib.parse import urlsplit

from kernel.errors import Problem, pointer_to, problem
from runtime_envs.addresses import HOST, HOST_NAME, AllowedHosts, may_fetch_from
from runtime_envs.packages.bucket import BUCKET_NAMES, REGION, BucketType
from runtime_envs.volumes.model import Mount, NewVolume, VolumeType

MAX_PATH = 512
MAX_MOUNTS = 64

_RAY = "/tmp/ray"  # noqa: S108 - Ray's own folder, of sessions and working directories
_RESERVED = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    _RAY,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class VolumeRules:
    """What the operator of this installation allows."""

    local_roots: tuple[str, ...] | None = None
    """Folders that local volumes may lie in; None: any."""
    endpoints: frozenset[str] = frozenset()
    """Servers of S3, whatever their addresses."""
    hosts: AllowedHosts = field(default_factory=AllowedHosts)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attribute:
    pattern: re.Pattern[str]
    shape: str
    default: str | None = None
    """None: it must be given, unless it is `optional`."""
    optional: bool = False


def _one_of(*words: str, default: str) -> _Attribute:
    return _Attribute(pattern=re.compile("|".join(words)), shape=" | ".join(words), default=default)


_PATH_SHAPE = "/folder/name, of A-Z a-z 0-9 _ . = , : -"
_SOURCE_PATH = re.compile(r"/|(/[A-Za-z0-9_.=,:-]+)+")
_MOUNT_PATH = re.compile(r"(/[\w.=,+@-]{1,255})+")
_SUB_PATH = re.compile(r"[\w.=,:+@ -]+(/[\w.=,:+@ -]+)*")

_PATH = _Attribute(pattern=_SOURCE_PATH, shape=_PATH_SHAPE, default="/")
_REGION = _Attribute(pattern=REGION, shape="a-z 0-9 -")
_HOST = _Attribute(pattern=HOST_NAME, shape="a host name or an IPv4 address")
_CLAIM = _Attribute(pattern=re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9.-]*[a-z0-9])?"), shape="a-z 0-9 - .")

_SOURCES: Mapping[VolumeType, Mapping[str, _Attribute]] = MappingProxyType(
    {
        VolumeType.COS: {
            "bucket": _Attribute(pattern=BUCKET_NAMES[BucketType.COS], shape="name-appid"),
            "region": _REGION,
            "path": _PATH,
        },
        VolumeType.S3: {
            "bucket": _Attribute(pattern=BUCKET_NAMES[BucketType.S3], shape="a-z 0-9 - ."),
            "region": replace(_REGION, optional=True),
            "endpoint": _Attribute(
                pattern=re.compile(rf"https?://{HOST}(:[1-9][0-9]{{0,4}})?"),
                shape="https://host or https://host:port",
                optional=True,
            ),
            "path": _PATH,
        },
        VolumeType.CFS: {"host": _HOST, "path": _PATH, "vers": _one_of("3", "4", default="4")},
        VolumeType.CFS_TURBO: {
            "host": _HOST,
            "fsid": _Attribute(pattern=re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}"), shape="A-Z a-z 0-9 -"),
            "path": _PATH,
            "proto": _one_of("lustre", "nfs", default="lustre"),
        },
        VolumeType.GOOSEFS: {"claim_name": _CLAIM, "path": _PATH},
        VolumeType.PVC: {"claim_name": _CLAIM, "path": _PATH},
        VolumeType.NFS: {"server": _HOST, "path": _PATH},
        VolumeType.LOCAL: {"path": replace(_PATH, pattern=re.compile(r"(/[A-Za-z0-9_.=,:-]+)+"), default=None)},
    }
)
_ADDRESSES = frozenset({"host", "server", "endpoint"})
_WITH_CREDENTIAL = frozenset({VolumeType.COS, VolumeType.S3})


def with_defaults(new: NewVolume) -> NewVolume:
    known = _SOURCES[new.type]
    missing = {name: one.default for name, one in known.items() if one.default is not None and name not in new.source}
    return replace(new, source={**new.source, **missing})


def check_volume(new: NewVolume, rules: VolumeRules) -> list[Problem]:
    """Of one with its defaults; whether its credential exists, the service asks."""
    known = _SOURCES[new.type]
    found = [
        problem("UNKNOWN_FIELD", pointer_to("source", name), field=name) for name in new.source if name not in known
    ]
    for name, attribute in known.items():
        if name in new.source:
            found += _check_attribute(name, attribute, new.source[name], rules)
        elif not attribute.optional:
            found.append(problem("FIELD_REQUIRED", pointer_to("source", name), field=name))
    if new.type is VolumeType.LOCAL and not found and not _is_local(new.source["path"], rules):
        found.append(problem("LOCAL_VOLUME_NOT_ALLOWED", "/source/path", path=new.source["path"]))
    return [*found, *_check_credential(new)]


def check_mounts(mounts: Sequence[Mount], pointer: str) -> list[Problem]:
    if len(mounts) > MAX_MOUNTS:
        return [problem("TOO_MANY_MOUNTS", pointer, count=len(mounts), maximum=MAX_MOUNTS)]
    found = []
    for index, mount in enumerate(mounts):
        at = f"{pointer}/{index}"
        found += _check_mount_path(mount.mount_path, f"{at}/mount_path")
        if mount.sub_path and not _is_plain(mount.sub_path, _SUB_PATH):
            found.append(problem("SUB_PATH_INVALID", f"{at}/sub_path", sub_path=mount.sub_path[:MAX_PATH]))
    return found or _check_apart([mount.mount_path for mount in mounts], pointer)


def _check_attribute(name: str, attribute: _Attribute, value: str, rules: VolumeRules) -> list[Problem]:
    pointer = pointer_to("source", name)
    if not _is_plain(value, attribute.pattern):
        return [problem("INVALID_VALUE", pointer, allowed=attribute.shape)]
    if name not in _ADDRESSES or value in rules.endpoints:
        return []
    host = urlsplit(value if "//" in value else f"//{value}").hostname
    if host is not None and may_fetch_from(host, rules.hosts):
        return []
    return [problem("ADDRESS_NOT_ALLOWED", pointer, address=value)]


def _check_credential(new: NewVolume) -> list[Problem]:
    if new.type in _WITH_CREDENTIAL:
        return [] if new.credential else [problem("FIELD_REQUIRED", "/credential", field="credential")]
    if new.credential is None:
        return []
    return [problem("FIELD_NOT_FOR_TYPE", "/credential", field="credential", type=str(new.type))]


def _is_local(path: str, rules: VolumeRules) -> bool:
    return rules.local_roots is None or any(PurePosixPath(path).is_relative_to(root) for root in rules.local_roots)


def _check_mount_path(path: str, pointer: str) -> list[Problem]:
    if not _is_plain(path, _MOUNT_PATH):
        return [problem("MOUNT_PATH_INVALID", pointer, mount_path=path[:MAX_PATH])]
    if any(_overlap(path, one) for one in _RESERVED):
        return [problem("MOUNT_PATH_RESERVED", pointer, mount_path=path)]
    return []


def _check_apart(paths: Sequence[str], pointer: str) -> list[Problem]:
    """Neither twice the same, nor one within another, which would depend on the order of mounting."""
    found = []
    for index, path in enumerate(paths):
        if other := next((one for one in paths[:index] if _overlap(path, one)), None):
            found.append(problem("MOUNT_PATHS_OVERLAP", f"{pointer}/{index}/mount_path", mount_path=path, other=other))
    return found


def _overlap(path: str, other: str) -> bool:
    one, two = f"{path}/", f"{other}/"
    return one.startswith(two) or two.startswith(one)


def _is_plain(text: str, pattern: re.Pattern[str]) -> bool:
    """Of the shape, and as it would be written if nothing in it led elsewhere."""
    return len(text) <= MAX_PATH and pattern.fullmatch(text) is not None and not {".", ".."} & set(text.split("/"))
