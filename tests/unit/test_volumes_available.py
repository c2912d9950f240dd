"""Whether a mount can be had on a cluster (storage.md §6)."""

import pytest

from runtime_envs.volumes.available import Lack, Site, WantedMount, check_available, lack_of
from runtime_envs.volumes.model import Mount, VolumeType

PLUGIN = Site(has_plugin=True)
ATTACHED = Site(
    has_plugin=False,
    attached=(
        Mount(volume="sets", mount_path="/data"),
        Mount(volume="sets", mount_path="/part", sub_path="part"),
        Mount(volume="fixed", mount_path="/fixed", read_only=True),
    ),
)
BOTH = Site(has_plugin=True, attached=ATTACHED.attached)


def wanted(
    volume: str, mount_path: str, kind: str = "nfs", sub_path: str = "", *, read_only: bool = False
) -> WantedMount:
    mount = Mount(volume=volume, mount_path=mount_path, sub_path=sub_path, read_only=read_only)
    return WantedMount(mount=mount, type=VolumeType(kind))


@pytest.mark.parametrize("kind", ["local", "s3", "cos", "nfs", "cfs"])
def test_what_the_plugin_mounts(kind: str) -> None:
    assert lack_of(wanted("sets", "/mnt/muster/a/b", kind, read_only=True), PLUGIN) is None
    assert lack_of(wanted("sets", "/data", kind), PLUGIN) is Lack.PATH
    assert lack_of(wanted("sets", "/mnt/muster", kind), PLUGIN) is Lack.PATH
    assert lack_of(wanted("sets", "/mnt/musterly/a", kind), PLUGIN) is Lack.PATH


@pytest.mark.parametrize("kind", ["pvc", "goosefs", "cfs_turbo"])
def test_what_only_pods_can_be_given(kind: str) -> None:
    assert lack_of(wanted("sets", "/mnt/muster/a", kind), PLUGIN) is Lack.VOLUME
    assert lack_of(wanted("sets", "/data", kind), BOTH) is None
    assert lack_of(wanted("sets", "/mnt/muster/a", kind), BOTH) is Lack.PATH


@pytest.mark.parametrize(
    ("mount", "lack"),
    [
        (wanted("sets", "/data"), None),
        (wanted("sets", "/data", "pvc"), None),
        (wanted("sets", "/part", sub_path="part"), None),
        (wanted("sets", "/elsewhere"), Lack.PATH),
        (wanted("sets", "/mnt/muster/data"), Lack.PATH),
        (wanted("sets", "/data", sub_path="part"), Lack.PATH),
        (wanted("sets", "/data", sub_path="other"), Lack.VOLUME),
        (wanted("others", "/data"), Lack.VOLUME),
        (wanted("sets", "/data", read_only=True), Lack.READ_ONLY),
        (wanted("fixed", "/fixed", read_only=True), None),
        (wanted("fixed", "/fixed"), None),
    ],
)
def test_what_somebody_else_has_mounted(mount: WantedMount, lack: Lack | None) -> None:
    assert lack_of(mount, ATTACHED) is lack


def test_the_plugin_helps_where_it_is_mounted_elsewhere() -> None:
    assert lack_of(wanted("sets", "/mnt/muster/data", read_only=True), BOTH) is None
    assert lack_of(wanted("sets", "/data", read_only=True), BOTH) is Lack.READ_ONLY


def test_where_and_what_is_told() -> None:
    mounts = [
        wanted("sets", "/data"),
        None,
        wanted("sets", "/elsewhere"),
        wanted("others", "/data"),
        wanted("sets", "/data", read_only=True),
    ]
    found = check_available(mounts, ATTACHED, "lab", "/mounts")
    assert [(one.code, one.pointer) for one in found] == [
        ("MOUNT_PATH_NOT_AVAILABLE", "/mounts/2/mount_path"),
        ("MOUNT_NOT_AVAILABLE_ON_CLUSTER", "/mounts/3/volume"),
        ("MOUNT_NOT_READ_ONLY", "/mounts/4/read_only"),
    ]
    assert (found[0].params["cluster"], found[0].params["allowed"]) == ("lab", ["/data", "/part"])
    (of_plugin,) = check_available(mounts[:1], PLUGIN, "lab", "/mounts")
    assert of_plugin.params["allowed"] == ["/mnt/muster/…"]
