"""Volumes as objects of Kubernetes and fields of pods, against a file that was read beside storage.md §1-§3."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from runtime_envs.packages.bucket import BucketKeys
from runtime_envs.volumes.check import VolumeRules, check_volume, with_defaults
from runtime_envs.volumes.kubernetes import Owner, Rendered, render
from runtime_envs.volumes.model import Mount, NewVolume, Volume, VolumeType

EXPECTED = yaml.safe_load((Path(__file__).parent / "kubernetes_volumes.yaml").read_text("utf-8"))
OWNER = Owner(cluster="clu_01kbb0000000000000000000c1", namespace="team-a")
KEYS = {"cos": BucketKeys(key_id="the-id", secret_key="the-key")}
SOURCES = {
    VolumeType.COS: {"bucket": "data-1250000000", "region": "ap-guangzhou", "path": "/sets"},
    VolumeType.S3: {"bucket": "data", "region": "eu-west-1", "endpoint": "https://s3.example:9000", "path": "/sets/v1"},
    VolumeType.CFS: {"host": "10.0.0.2"},
    VolumeType.CFS_TURBO: {"host": "10.0.0.3", "fsid": "a1b2c3d4", "path": "/sets"},
    VolumeType.GOOSEFS: {"claim_name": "goose", "path": "/ns"},
    VolumeType.NFS: {"server": "nfs.example", "path": "/export"},
    VolumeType.PVC: {"claim_name": "shared"},
    VolumeType.LOCAL: {"path": "/data/sets"},
}


def a_volume(kind: VolumeType, name: str | None = None) -> Volume:
    credential = "keys" if kind in {VolumeType.COS, VolumeType.S3} else None
    new = with_defaults(NewVolume(name=name or str(kind), type=kind, source=SOURCES[kind], credential=credential))
    assert not check_volume(new, VolumeRules())
    number = list(VolumeType).index(kind)
    return Volume(
        id=f"vol_01kbb0000000000000000000v{number}",
        name=new.name,
        type=kind,
        source=new.source,
        credential=credential,
        created_at=datetime(2026, 12, 1, tzinfo=UTC),
        created_by="ann",
    )


VOLUMES = {str(kind): a_volume(kind) for kind in VolumeType}


def rendered(*mounts: Mount) -> Rendered:
    return render(OWNER, mounts, VOLUMES, KEYS)


def as_data(found: Rendered) -> dict[str, object]:
    return {
        "objects": list(found.objects),
        "volumes": list(found.volumes),
        "volume_mounts": list(found.volume_mounts),
    }


@pytest.mark.parametrize("kind", VolumeType)
@pytest.mark.parametrize("way", ["writable", "read_only"])
def test_each_type(kind: VolumeType, way: str) -> None:
    mount = Mount(volume=str(kind), mount_path="/data", sub_path="part/one", read_only=way == "read_only")
    assert as_data(rendered(mount)) == EXPECTED[str(kind)][way]


def test_every_type_is_in_the_file() -> None:
    assert EXPECTED.keys() == set(VolumeType)


def test_two_mounts_of_one_volume_share_what_is_alike() -> None:
    found = rendered(
        Mount(volume="cos", mount_path="/a", sub_path="a"),
        Mount(volume="cos", mount_path="/b", sub_path="b"),
        Mount(volume="cos", mount_path="/c", read_only=True),
    )
    kinds = [one["kind"] for one in found.objects]
    assert kinds == ["Secret", *["PersistentVolume", "PersistentVolumeClaim"] * 2]
    assert len(found.volumes) == 2
    first, second, read_only = found.volume_mounts
    assert first["name"] == second["name"] != read_only["name"]
    assert "subPath" not in read_only
    handles = [one["spec"]["csi"]["volumeHandle"] for one in found.objects if one["kind"] == "PersistentVolume"]
    assert len(set(handles)) == 2


def test_clusters_share_nothing() -> None:
    mount = Mount(volume="cfs", mount_path="/data")
    other = Owner(cluster="clu_01kbb0000000000000000000c2", namespace="team-b")
    names = {one["metadata"]["name"] for one in render(other, [mount], VOLUMES, KEYS).objects}
    assert names.isdisjoint(one["metadata"]["name"] for one in rendered(mount).objects)


def test_names_fit_kubernetes() -> None:
    found = rendered(*(Mount(volume=str(kind), mount_path=f"/m/{kind}", read_only=True) for kind in VolumeType))
    assert all(len(one["metadata"]["name"]) <= 128 for one in found.objects)  # the most a volume handle may have
    assert all(len(one["name"]) <= 63 for one in found.volumes)
    assert all(len(value) <= 63 for one in found.objects for value in one["metadata"]["labels"].values())
