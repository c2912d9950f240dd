"""Pure: a cluster's mounts → the objects of Kubernetes they need, and the fields of its pods (storage.md §1-§3).

Everything is static, and belongs to one cluster: its own PV and PVC for each volume, one more where it is mounted
read-only, as some drivers can tell that only from attributes. Pods name claims only, so that a namespace which allows
neither `hostPath` nor `nfs` in a pod takes them. Names are made of ids, which nobody chose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from runtime_envs.packages.bucket import BucketKeys
from runtime_envs.volumes.model import Mount, Volume, VolumeType

Json = dict[str, Any]

_SIZE = "10Gi"
"""Of no meaning for what grows by itself, and required."""
_TURBO_ROOT = "/cfs"
_S3_WRITABLE = ("allow-delete", "allow-overwrite", "dir-mode=0777", "file-mode=0666")
"""Whatever user an image has."""
_EXISTING = frozenset({VolumeType.PVC, VolumeType.GOOSEFS})
"""Named by a claim that is there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """The cluster whose pods mount."""

    cluster: str
    namespace: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    objects: tuple[Json, ...]
    """Secrets, PVs and PVCs, to be there before the pods."""
    volumes: tuple[Json, ...]
    """Of the head and of every worker."""
    volume_mounts: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class _Use:
    """One volume in one way."""

    owner: Owner
    volume: Volume
    read_only: bool

    @property
    def name(self) -> str:
        """Of its PV, which is the volume handle too, and of its PVC."""
        return f"{self.secret}-ro" if self.read_only else self.secret

    @property
    def secret(self) -> str:
        return "muster-" + _kube(f"{self.owner.cluster}-{self.volume.id}")

    @property
    def in_pod(self) -> str:
        return _kube(self.volume.id) + ("-ro" if self.read_only else "")

    @property
    def claim(self) -> str:
        return self.volume.source["claim_name"] if self.volume.type in _EXISTING else self.name


def render(
    owner: Owner, mounts: Sequence[Mount], volumes: Mapping[str, Volume], keys: Mapping[str, BucketKeys]
) -> Rendered:
    """`volumes` and `keys` by the volume's name; of keys those of COS, as no other driver takes any from here."""
    used = [_Use(owner, volumes[mount.volume], mount.read_only) for mount in mounts]
    uses = {use.in_pod: use for use in used}
    own = [use for use in uses.values() if use.volume.type not in _EXISTING]
    secrets = {use.secret: _secret(use, keys[use.volume.name]) for use in own if use.volume.type is VolumeType.COS}
    return Rendered(
        objects=(*secrets.values(), *(made(use) for use in own for made in (_persistent_volume, _claim))),
        volumes=tuple(_pod_volume(use) for use in uses.values()),
        volume_mounts=tuple(_volume_mount(use, mount) for use, mount in zip(used, mounts, strict=True)),
    )


def _secret(use: _Use, keys: BucketKeys) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": use.secret, "namespace": use.owner.namespace, "labels": _labels(use)},
        "type": "Opaque",
        "stringData": {"SecretId": keys.key_id, "SecretKey": keys.secret_key},
    }


def _persistent_volume(use: _Use) -> Json:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": use.owner.namespace,
        "name": use.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": use.name, "labels": _labels(use)},
        "spec": {
            "capacity": {"storage": _SIZE},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": claim,  # so nobody else binds it
            **_SOURCES[use.volume.type](use),
        },
    }


def _claim(use: _Use) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": use.name, "namespace": use.owner.namespace, "labels": _labels(use)},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeName": use.name,
            "storageClassName": "",
            "resources": {"requests": {"storage": _SIZE}},
        },
    }


def _pod_volume(use: _Use) -> Json:
    claim = {"claimName": use.claim, "readOnly": use.read_only}
    return {"name": use.in_pod, "persistentVolumeClaim": claim}


def _volume_mount(use: _Use, mount: Mount) -> Json:
    """`readOnly` here is what holds whatever the driver makes of it."""
    inner = [mount.sub_path]
    if use.volume.type in _EXISTING:  # nothing but the pod can lead into it
        inner.insert(0, use.volume.source["path"].strip("/"))
    sub_path = "/".join(filter(None, inner))
    return {
        "name": use.in_pod,
        "mountPath": mount.mount_path,
        **({"subPath": sub_path} if sub_path else {}),
        "readOnly": mount.read_only,
        "mountPropagation": "HostToContainer",  # what a FUSE client's restart mounts anew is seen
    }


def _cos(use: _Use) -> Json:
    """The driver passes over `readOnly`, so the client is told. `additional_args` are ours alone."""
    source = use.volume.source
    attributes = {
        "url": f"http://cos.{source['region']}.myqcloud.com",
        "bucket": source["bucket"],
        "path": source["path"],
        "additional_args": "-oallow_other -oro" if use.read_only else "-oallow_other",
    }
    secret = {"name": use.secret, "namespace": use.owner.namespace}
    return _csi(use, "com.tencent.cloud.csi.cosfs", attributes, nodePublishSecretRef=secret)


def _s3(use: _Use) -> Json:
    """With the driver's own credentials: it takes none from a PV."""
    source = use.volume.source
    prefix = source["path"].strip("/")
    options = [
        *([f"region {source['region']}"] if "region" in source else []),
        *([f"endpoint-url {source['endpoint']}", "force-path-style"] if "endpoint" in source else []),
        *([f"prefix {prefix}/"] if prefix else []),
        "allow-other",  # else only root, who mounts it, reads it
        *(["read-only"] if use.read_only else _S3_WRITABLE),
    ]
    attributes = {"bucketName": source["bucket"], "authenticationSource": "driver"}
    return {"mountOptions": options, **_csi(use, "s3.csi.aws.com", attributes)}


def _cfs(use: _Use) -> Json:
    source = use.volume.source
    attributes = {name: source[name] for name in ("host", "path", "vers")}
    return _csi(use, "com.tencent.cloud.csi.cfs", attributes)


def _cfs_turbo(use: _Use) -> Json:
    source = use.volume.source
    attributes = {name: source[name] for name in ("host", "fsid", "proto", "path")}
    return _csi(use, "com.tencent.cloud.csi.cfsturbo", {**attributes, "rootdir": _TURBO_ROOT})


def _nfs(use: _Use) -> Json:
    source = use.volume.source
    return {"nfs": {"server": source["server"], "path": source["path"], "readOnly": use.read_only}}


def _local(use: _Use) -> Json:
    return {"hostPath": {"path": use.volume.source["path"], "type": "Directory"}}


def _csi(use: _Use, driver: str, attributes: Mapping[str, str], **more: Any) -> Json:
    read_only = {"readOnly": True} if use.read_only else {}
    return {
        "csi": {"driver": driver, "volumeHandle": use.name, **read_only, "volumeAttributes": dict(attributes), **more}
    }


_SOURCES: Mapping[VolumeType, Callable[[_Use], Json]] = MappingProxyType(
    {
        VolumeType.COS: _cos,
        VolumeType.S3: _s3,
        VolumeType.CFS: _cfs,
        VolumeType.CFS_TURBO: _cfs_turbo,
        VolumeType.NFS: _nfs,
        VolumeType.LOCAL: _local,
    }
)


def _labels(use: _Use) -> Json:
    return {
        "app.kubernetes.io/managed-by": "muster",
        "muster/cluster": _kube(use.owner.cluster),
        "muster/volume": _kube(use.volume.id),
    }


def _kube(identity: str) -> str:
    return identity.replace("_", "-")
