"""Which volumes and mounts are acceptable in themselves (storage.md §4)."""

from typing import Any

import pytest

from runtime_envs.addresses import AllowedHosts, may_fetch_from
from runtime_envs.volumes.check import MAX_MOUNTS, VolumeRules, check_mounts, check_volume, with_defaults
from runtime_envs.volumes.model import Mount, NewVolume, VolumeType

GOOD: dict[str, dict[str, str]] = {
    "cos": {"bucket": "data-1250000000", "region": "ap-guangzhou"},
    "s3": {"bucket": "data", "region": "eu-west-1"},
    "cfs": {"host": "10.0.0.2"},
    "cfs_turbo": {"host": "10.0.0.2", "fsid": "a1b2c3d4"},
    "goosefs": {"claim_name": "goose"},
    "nfs": {"server": "nfs.example", "path": "/export"},
    "pvc": {"claim_name": "shared"},
    "local": {"path": "/data"},
}
BAD_WORDS = ("", " ", "a b", "a;b", "$(id)", "`id`", "a'b", 'a"b', "a|b", "a&b", "a\nb", "a\0b", "-o ro", "a\\b", "é")
BAD_PATHS = (*BAD_WORDS, "a", "/a/", "//a", "/a//b", "/a/../b", "/..", "/a/.", "/a b", "/a;b", "/" + "a" * 600)


def a_volume(kind: str, credential: str | None = None, **source: str) -> NewVolume:
    needs_one = kind in {"cos", "s3"}
    credential = credential or ("keys" if needs_one else None)
    return NewVolume(name="v", type=VolumeType(kind), source={**GOOD[kind], **source}, credential=credential)


def found(new: NewVolume, rules: VolumeRules | None = None) -> list[tuple[str, str | None]]:
    return [(one.code, one.pointer) for one in check_volume(with_defaults(new), rules or VolumeRules())]


class TestVolumes:
    @pytest.mark.parametrize("kind", GOOD)
    def test_the_least_that_each_type_needs(self, kind: str) -> None:
        assert found(a_volume(kind)) == []
        assert with_defaults(a_volume(kind)).source["path"]

    @pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, source in GOOD.items() for name in source])
    def test_what_is_missing(self, kind: str, name: str) -> None:
        new = NewVolume(name="v", type=VolumeType(kind), source={}, credential=a_volume(kind).credential)
        is_required = (kind, name) not in {("s3", "region"), ("nfs", "path")}
        assert (("FIELD_REQUIRED", f"/source/{name}") in found(new)) is is_required

    @pytest.mark.parametrize("word", BAD_WORDS)
    @pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, source in GOOD.items() for name in source])
    def test_nothing_special_to_a_shell_or_a_list_of_options(self, kind: str, name: str, word: str) -> None:
        assert found(a_volume(kind, **{name: word})) == [("INVALID_VALUE", f"/source/{name}")]

    @pytest.mark.parametrize("path", BAD_PATHS)
    @pytest.mark.parametrize("kind", GOOD)
    def test_paths(self, kind: str, path: str) -> None:
        assert found(a_volume(kind, path=path)) == [("INVALID_VALUE", "/source/path")]

    @pytest.mark.parametrize("kind", GOOD)
    def test_a_path_of_plain_characters(self, kind: str) -> None:
        assert found(a_volume(kind, path="/A-z_0.9/a=b,c:d")) == []

    @pytest.mark.parametrize(
        ("kind", "name", "value"),
        [
            ("cos", "bucket", "data"),
            ("cos", "bucket", "Data-1250000000"),
            ("cos", "region", "ap_guangzhou"),
            ("s3", "bucket", "a..b"),
            ("s3", "bucket", "x" * 64),
            ("s3", "endpoint", "s3.example"),
            ("s3", "endpoint", "ftp://s3.example"),
            ("s3", "endpoint", "https://s3.example/path"),
            ("s3", "endpoint", "https://user@s3.example"),
            ("s3", "endpoint", "https://s3.example,allow_root"),
            ("cfs", "vers", "4.1"),
            ("cfs", "host", "10.0.0.2:/x"),
            ("cfs_turbo", "proto", "smb"),
            ("cfs_turbo", "fsid", "../x"),
            ("goosefs", "claim_name", "Claim"),
            ("pvc", "claim_name", "a/b"),
            ("nfs", "server", "a_b"),
            ("nfs", "server", "a..b"),
            ("nfs", "server", "a" * 254),
            ("local", "path", "/"),
        ],
    )
    def test_values_of_another_shape(self, kind: str, name: str, value: str) -> None:
        assert found(a_volume(kind, **{name: value})) == [("INVALID_VALUE", f"/source/{name}")]

    @pytest.mark.parametrize("name", ["additional_args", "mounter", "options", "BUCKET", "a/b"])
    def test_what_no_user_may_set(self, name: str) -> None:
        assert found(a_volume("cos", **{name: "x"})) == [("UNKNOWN_FIELD", f"/source/{name.replace('/', '~1')}")]

    def test_credentials_go_with_buckets(self) -> None:
        without = NewVolume(name="v", type=VolumeType.S3, source=GOOD["s3"])
        assert found(without) == [("FIELD_REQUIRED", "/credential")]
        assert found(a_volume("nfs", credential="keys")) == [("FIELD_NOT_FOR_TYPE", "/credential")]

    @pytest.mark.parametrize(
        ("kind", "name", "value"),
        [
            ("cfs", "host", "127.0.0.1"),
            ("cfs_turbo", "host", "169.254.0.23"),
            ("nfs", "server", "localhost"),
            ("nfs", "server", "0.0.0.0"),
            ("nfs", "server", "2130706433"),
            ("nfs", "server", "127.1"),
            ("s3", "endpoint", "http://169.254.169.254"),
            ("s3", "endpoint", "http://127.0.0.1:8333"),
            ("s3", "endpoint", "http://LOCALHOST:8333"),
        ],
    )
    def test_addresses(self, kind: str, name: str, value: str) -> None:
        new = a_volume(kind, **{name: value})
        assert found(new) == [("ADDRESS_NOT_ALLOWED", f"/source/{name}")]
        words = ["127.0.0.0/8", "169.254.0.0/16", "0.0.0.0", "localhost"]
        is_plain = value not in {"2130706433", "127.1"}
        assert (found(new, VolumeRules(hosts=AllowedHosts.of(words))) == []) is is_plain

    def test_an_endpoint_the_operator_lists(self) -> None:
        endpoint = "http://127.0.0.1:8333"
        assert found(a_volume("s3", endpoint=endpoint), VolumeRules(endpoints=frozenset({endpoint}))) == []

    @pytest.mark.parametrize(
        ("roots", "path", "is_allowed"),
        [
            (None, "/anywhere", True),
            ((), "/anywhere", False),
            (("/data",), "/data", True),
            (("/data",), "/data/sets", True),
            (("/data",), "/database", False),
            (("/data", "/srv"), "/srv/x", True),
        ],
    )
    def test_folders_of_local_volumes(self, roots: tuple[str, ...] | None, path: str, is_allowed: bool) -> None:
        expected = [] if is_allowed else [("LOCAL_VOLUME_NOT_ALLOWED", "/source/path")]
        assert found(a_volume("local", path=path), VolumeRules(local_roots=roots)) == expected


class TestMounts:
    @pytest.mark.parametrize("path", ["/data", "/mnt/muster/a", "/home/ray/sets", "/数据/a", "/etcetera", "/tmp/rays"])
    def test_paths_to_mount_at(self, path: str) -> None:
        assert not check_mounts([Mount(volume="v", mount_path=path)], "/mounts")

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            *((path, "MOUNT_PATH_INVALID") for path in (*BAD_PATHS, "/", "/a:b", "/a\u2028b") if path != "é"),
            *((path, "MOUNT_PATH_RESERVED") for path in ("/proc", "/proc/1", "/sys", "/dev", "/dev/shm", "/etc/x")),
            *((path, "MOUNT_PATH_RESERVED") for path in ("/usr", "/usr/local", "/bin", "/lib", "/tmp", "/tmp/ray/s")),
        ],
    )
    def test_paths_not_to_mount_at(self, path: str, code: str) -> None:
        (problem,) = check_mounts([Mount(volume="v", mount_path=path)], "/volumes")
        assert (problem.code, problem.pointer) == (code, "/volumes/0/mount_path")

    @pytest.mark.parametrize("sub_path", ["", "a", "a/b", "数据/a b", "-a", "a=b,c:d+e@f"])
    def test_sub_paths(self, sub_path: str) -> None:
        assert not check_mounts([Mount(volume="v", mount_path="/data", sub_path=sub_path)], "/mounts")

    @pytest.mark.parametrize("sub_path", ["/a", "a/", "..", "a/../b", ".", "a//b", "a\0b", "a;b", "$a", "a\\b", "a\nb"])
    def test_sub_paths_that_lead_elsewhere(self, sub_path: str) -> None:
        (problem,) = check_mounts([Mount(volume="v", mount_path="/data", sub_path=sub_path)], "/mounts")
        assert (problem.code, problem.pointer) == ("SUB_PATH_INVALID", "/mounts/0/sub_path")

    @pytest.mark.parametrize(
        ("paths", "at"),
        [
            (("/a", "/b", "/ab"), None),
            (("/a", "/a"), 1),
            (("/a", "/b", "/a/b"), 2),
            (("/a/b/c", "/a"), 1),
        ],
    )
    def test_mounts_apart(self, paths: tuple[str, ...], at: int | None) -> None:
        problems = check_mounts([Mount(volume="v", mount_path=path) for path in paths], "/mounts")
        expected = [] if at is None else [("MOUNT_PATHS_OVERLAP", f"/mounts/{at}/mount_path")]
        assert [(one.code, one.pointer) for one in problems] == expected

    def test_not_too_many(self) -> None:
        many = [Mount(volume="v", mount_path=f"/m/{number}") for number in range(MAX_MOUNTS + 1)]
        assert not check_mounts(many[1:], "/mounts")
        (problem,) = check_mounts(many, "/mounts")
        assert (problem.code, problem.pointer) == ("TOO_MANY_MOUNTS", "/mounts")


class TestAllowedHosts:
    @pytest.mark.parametrize("word", ["", "a b", "10.0.0.1/8", "127.1", "http://a", "*"])
    def test_words_that_are_no_host(self, word: str) -> None:
        with pytest.raises(ValueError, match="is no host"):
            AllowedHosts.of([word])

    @pytest.mark.parametrize(
        ("host", "words", "is_allowed"),
        [
            ("localhost", ["LocalHost"], True),
            ("a.localhost", ["localhost"], False),
            ("127.0.0.1", ["127.0.0.1"], True),
            ("127.0.0.2", ["127.0.0.1"], False),
            ("::1", ["::1"], True),
            ("::ffff:127.0.0.1", ["127.0.0.0/8"], True),
            ("::ffff:127.0.0.1", [], False),
            ("10.1.2.3", [], True),
            ("example", [], True),
            ("metadata.tencentyun.com", [], False),
            ("metadata.google.internal.", [], False),
            ("metadata.google.internal", ["metadata.google.internal"], True),
            ("localhost.localdomain", [], False),
            ("ip6-localhost", [], False),
            ("localdomain.example", [], True),
            ("fd00:ec2::254", [], False),
            ("fd12::8", ["fd12::/16"], True),
            ("2001:db8::1", [], True),
            ("::169.254.169.254", [], False),
            ("64:ff9b::a9fe:a9fe", [], False),
            ("64:ff9b::a9fe:a9fe", ["169.254.169.254"], True),
            ("64:ff9b::10.1.2.3", [], True),
            ("2002:a9fe:a9fe::1", [], False),
            ("2002:a01:203::1", [], True),
        ],
    )
    def test_what_they_allow(self, host: str, words: list[Any], is_allowed: bool) -> None:
        assert may_fetch_from(host, AllowedHosts.of(words)) is is_allowed
