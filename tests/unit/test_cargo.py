"""What an attempt takes along: by the plugin where it is, by what the cluster has mounted where it is not."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from rayjobs.cargo import CannotSubmit, Carrier, carry_mounts, carry_package
from rayjobs.model.job import JobSpec, RunMode
from rayjobs.model.run import EndClass, EndCode
from rayjobs.snapshot import AttemptSnapshot
from rayjobs.submission import Packages
from runtime_envs.model import UPLOAD_SOURCE, Package
from runtime_envs.node_plugin.terms import MOUNTS_KEY, PACKAGE_KEY, read_mounts, read_package
from runtime_envs.volumes.available import Site
from runtime_envs.volumes.model import Mount, Volume, VolumeType
from tests.builders.runs import a_cluster, an_attempt

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ATTEMPT = "run_1-a1"
MADE = Carrier(cluster="made", site=Site(has_plugin=True), callback="http://muster")
UNREACHABLE = Carrier(cluster="made", site=Site(has_plugin=True), callback=None)
THERE = Mount(volume="big-data", mount_path="/data")
ATTACHED = Carrier(cluster="theirs", site=Site(has_plugin=False, attached=(THERE,)), callback="http://muster")


def volumes(**given: str | None) -> Mapping[str, Volume]:
    """Names and their credentials."""
    return {
        name: Volume(
            id=f"vol_{name}", name=name, type=VolumeType.S3 if credential else VolumeType.LOCAL,
            source={"path": "/"}, credential=credential, created_at=NOW, created_by="ops",
        )
        for name, credential in given.items()
    }  # fmt: skip


def a_package(size_bytes: int) -> Package:
    return Package(
        id="pkg_1", sha256="0" * 64, size_bytes=size_bytes, unpacked_bytes=1, entry_count=1, file_name="p.zip",
        source=UPLOAD_SOURCE, warnings=(), created_at=NOW, created_by="u",
    )  # fmt: skip


def refusal(call: Any, *arguments: object) -> tuple[EndCode, Mapping[str, Any]]:
    with pytest.raises(CannotSubmit) as refused:
        call(*arguments)
    assert refused.value.end.end_class is EndClass.ENVIRONMENT
    return refused.value.end.code, refused.value.end.params


def paths(*wanted: Mount, of_cluster: tuple[Mount, ...] = ()) -> list[tuple[str, str]]:
    carrier = Carrier(cluster="made", site=Site(has_plugin=True), callback=None, for_all=of_cluster)
    cargo = carry_mounts(ATTEMPT, wanted, volumes(a=None, b=None), carrier)
    return [(mount.volume, mount.path) for mount in read_mounts(cargo.keys[MOUNTS_KEY])[1]]


class TestMounts:
    def test_nothing_of_them_without_any(self) -> None:
        cargo = carry_mounts(ATTEMPT, (), {}, MADE)
        assert (cargo.keys, cargo.variables) == ({}, {})

    def test_for_the_plugin(self) -> None:
        mount = Mount(volume="data", mount_path="/mnt/muster/deep/data", sub_path="x", read_only=True)
        cargo = carry_mounts(ATTEMPT, [mount], volumes(data="keys"), MADE)
        origin, (told,) = read_mounts(cargo.keys[MOUNTS_KEY])
        assert origin == (ATTEMPT, "http://muster")
        assert (told.volume, told.type, told.path, told.sub_path) == ("data", "s3", "deep/data", "x")
        assert (told.read_only, told.needs_credential) == (True, True)

    def test_those_of_the_cluster_are_the_attempts_too_unless_in_the_way(self) -> None:
        own = Mount(volume="a", mount_path="/mnt/muster/x/y")
        beside = Mount(volume="b", mount_path="/mnt/muster/x/yz")
        ways = [Mount(volume="b", mount_path=f"/mnt/muster/{path}") for path in ("x", "x/y", "x/y/z")]
        assert paths(own, of_cluster=(*ways, beside)) == [("a", "x/y"), ("b", "x/yz")]

    def test_without_the_plugin_a_variable_says_where_the_cluster_has_it(self) -> None:
        cargo = carry_mounts(ATTEMPT, [THERE], volumes(**{"big-data": None}), ATTACHED)
        assert (cargo.keys, cargo.variables) == ({}, {"MUSTER_MOUNT_BIG_DATA": "/data"})

    def test_keys_need_a_way_back(self) -> None:
        mount = Mount(volume="data", mount_path="/mnt/muster/data")
        said = refusal(carry_mounts, ATTEMPT, [mount], volumes(data="keys"), UNREACHABLE)
        assert said == (EndCode.CALLBACK_NEEDED, {"needed": "volume data", "cluster": "made"})
        assert carry_mounts(ATTEMPT, [mount], volumes(data=None), UNREACHABLE).keys

    @pytest.mark.parametrize(("volume", "path"), [("gone", "/mnt/muster/x"), ("a", "/data"), ("a", "/mnt/muster")])
    def test_what_cannot_be(self, volume: str, path: str) -> None:
        mount = Mount(volume=volume, mount_path=path)
        said = refusal(carry_mounts, ATTEMPT, [mount], volumes(a=None), MADE)
        assert said == (EndCode.MOUNT_IMPOSSIBLE, {"volume": volume, "cluster": "made"})

    def test_what_the_cluster_has_no_longer(self) -> None:
        gone = Carrier(cluster="theirs", site=Site(has_plugin=False), callback=None)
        said = refusal(carry_mounts, ATTEMPT, [THERE], volumes(**{"big-data": None}), gone)
        assert said == (EndCode.MOUNT_IMPOSSIBLE, {"volume": "big-data", "cluster": "theirs"})


class TestCarrier:
    """Ray refuses a plugin's key beside an image."""

    @pytest.mark.parametrize(("runtime_env", "for_all"), [({}, (THERE,)), ({"image_uri": "plain:1"}, ())])
    def test_brings_the_clusters_volumes_to_who_can_take_them(
        self, runtime_env: dict[str, Any], for_all: tuple[Mount, ...]
    ) -> None:
        view = an_attempt(cluster=a_cluster(mounts=(THERE,)))
        spec = JobSpec(name="j", run_mode=RunMode.CLUSTER, runtime_env=runtime_env)
        packages = Packages(own=None, ray_uploads=None, volumes=None)  # type: ignore[arg-type]  # none is asked for
        assert packages.carrier(AttemptSnapshot(view=view, spec=spec, owner="ann")).for_all == for_all


class TestPackage:
    def test_for_the_plugin(self) -> None:
        cargo = carry_package(ATTEMPT, a_package(7), MADE)
        assert read_package(cargo.keys[PACKAGE_KEY]) == ((ATTEMPT, "http://muster"), ("0" * 64, 7))

    def test_nowhere_else(self) -> None:
        said = refusal(carry_package, ATTEMPT, a_package(100 * 2**20 + 1), ATTACHED)
        params = {"package": "pkg_1", "size_mib": 101, "cluster": "theirs"}
        assert said == (EndCode.PACKAGE_TOO_LARGE_FOR_CLUSTER, params)
        assert refusal(carry_package, ATTEMPT, a_package(7), UNREACHABLE)[0] is EndCode.CALLBACK_NEEDED
