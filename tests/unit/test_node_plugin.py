"""What a node makes of the mounts it is told: commands without a shell, folders without a way out, words for people."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime_envs.node_plugin import mounting, system
from runtime_envs.node_plugin.commands import bucket_command, client_says, inner_path, passwd_line, server_command
from runtime_envs.node_plugin.mounting import Mounter, mounts_folder
from runtime_envs.node_plugin.terms import (
    NODE_ROOT,
    Mount,
    Origin,
    PackageTerms,
    SetupError,
    bearer,
    mounts_field,
    node_bearer,
    package_field,
    read_mounts,
    read_package,
)

ORIGIN = Origin("run_1-a1", "http://127.0.0.1:8266")
KEYS = {"key_id": "AK", "secret_key": "SK"}


def a_mount(type_: str, sub_path: str = "", *, read_only: bool = False, **source: str) -> Mount:
    return Mount("data-a", type_, source, "deep/data", sub_path, read_only)


def options_of(command: list[str]) -> set[str]:
    return {command[index + 1] for index, word in enumerate(command) if word == "-o"}


class TestTerms:
    def test_what_the_service_writes_the_node_reads(self) -> None:
        mounts = [a_mount("s3", "sub", bucket="b", endpoint="http://e", path="/"), a_mount("local", path="/d")]
        assert read_mounts(mounts_field(ORIGIN, mounts)) == (ORIGIN, mounts)
        package = PackageTerms("0" * 64, 7)
        assert read_package(package_field(ORIGIN, package)) == (ORIGIN, package)

    @pytest.mark.parametrize(
        "changes",
        [
            {"attempt": "../run"},
            {"attempt": None},
            {"mounts": None},
            {"mounts": [{}]},
            {"mounts": [a_mount("s3")._replace(path="../out")._asdict()]},
            {"mounts": [a_mount("s3")._replace(path="")._asdict()]},
            {"mounts": [a_mount("s3")._replace(path="/abs")._asdict()]},
            {"mounts": [a_mount("s3", "a/../b")._asdict()]},
            {"mounts": [a_mount("s3", "a\0b")._asdict()]},
        ],
    )
    def test_what_a_job_may_have_written_is_not_believed(self, changes: dict[str, Any]) -> None:
        with pytest.raises(SetupError, match="muster: "):
            read_mounts({**mounts_field(ORIGIN, []), **changes})

    def test_nodes_of_other_clusters_and_other_attempts_have_other_bearers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "token").write_text("t1\n")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
        assert node_bearer("run_1-a1") == bearer("t1", "run_1-a1")
        assert len({bearer(token, run) for token in ("t1", "t2") for run in ("run_1-a1", "run_1-a2")}) == 4


class TestBucketCommand:
    def command(self, mount: Mount, uid: int = 0) -> list[str]:
        return bucket_command("/usr/bin/s3fs", mount, "/n/data", "/n/own", (uid, uid))

    def test_s3_at_an_endpoint(self) -> None:
        command = self.command(a_mount("s3", "x/y", bucket="b", endpoint="http://127.0.0.1:1", region="r1", path="/p/"))
        assert command[:4] == ["/usr/bin/s3fs", "b:/p/x/y", "/n/data", "-f"]
        assert {
            "passwd_file=/n/own/passwd",
            "url=http://127.0.0.1:1",
            "endpoint=r1",
            "use_path_request_style",
        } <= options_of(command)
        assert not {"ro", "uid=0"} & options_of(command)

    def test_the_clouds_own_addresses(self) -> None:
        assert "url=https://s3.eu-west-1.amazonaws.com" in options_of(
            self.command(a_mount("s3", bucket="b", region="eu-west-1"))
        )
        cos = options_of(self.command(a_mount("cos", bucket="b-123456", region="ap-guangzhou", path="/"), uid=1000))
        assert {"url=https://cos.ap-guangzhou.myqcloud.com", "uid=1000", "gid=1000"} <= cos
        assert "use_path_request_style" not in cos

    def test_read_only(self) -> None:
        assert "ro" in options_of(self.command(a_mount("s3", bucket="b", read_only=True)))

    @pytest.mark.parametrize("endpoint", ["http://e,allow_other", "http://e;id", "http://e x", "http://$(id)"])
    def test_an_option_cannot_bring_another(self, endpoint: str) -> None:
        with pytest.raises(SetupError, match="not allowed"):
            self.command(a_mount("s3", bucket="b", endpoint=endpoint))

    def test_keys_go_into_a_file_for_this_bucket_only(self) -> None:
        assert passwd_line(a_mount("s3", bucket="b"), KEYS) == "b:AK:SK\n"

    @pytest.mark.parametrize(
        ("log", "words"),
        [
            (
                b"[ERR] x <Error><Code>Old</Code></Error> <Code>AccessDenied</Code><Message>No.</Message>",
                "AccessDenied: No.",
            ),
            (b"fuse: failed to open\n /dev/fuse", "fuse: failed to open /dev/fuse"),
            (b"", ""),
        ],
    )
    def test_what_the_client_said(self, log: bytes, words: str) -> None:
        assert client_says(log) == words


class TestServerCommand:
    @pytest.mark.parametrize(
        ("mount", "options", "what"),
        [
            (a_mount("nfs", "s", server="10.0.0.1", path="/share"), "vers=4.0,noresvport", "10.0.0.1:/share/s"),
            (a_mount("nfs", server="fd00::1", path="/"), "vers=4.0,noresvport", "[fd00::1]:/"),
            (a_mount("cfs", host="10.0.0.2", path="/a", read_only=True), "vers=4.0,noresvport,ro", "10.0.0.2:/a"),
            (a_mount("cfs", host="h", vers="3"), "vers=3,nolock,proto=tcp,noresvport", "h:/"),
        ],
    )
    def test_by_type(self, mount: Mount, options: str, what: str) -> None:
        assert server_command(mount, "/t") == ["mount", "-t", "nfs", "-o", options, what, "/t"]

    def test_a_path_has_no_slashes_at_its_ends(self) -> None:
        assert inner_path(a_mount("nfs", "c/d", path="/a/b/")) == "a/b/c/d"


class TestMounter:
    @pytest.fixture
    def mounter(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mounter]:
        monkeypatch.setenv(NODE_ROOT, str(tmp_path / "node"))
        mounter = Mounter()
        yield mounter
        monkeypatch.undo()
        assert not system.unmount_below(str(tmp_path))

    @pytest.fixture
    def as_user(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)

    @pytest.fixture
    def volume(self, tmp_path: Path) -> Path:
        volume = tmp_path / "volume"
        (volume / "in").mkdir(parents=True)
        (volume / "in" / "note").write_text("kept")
        (volume / "out").symlink_to("/etc")
        return volume

    def folder(self, tmp_path: Path) -> Path:
        return Path(mounts_folder(str(tmp_path / "node"), ORIGIN.attempt))

    @pytest.mark.usefixtures("as_user")
    def test_without_root_a_folder_is_linked_and_the_link_goes_again(
        self, mounter: Mounter, volume: Path, tmp_path: Path
    ) -> None:
        mount = a_mount("local", "in", path=str(volume))
        for _ in range(2):  # the second finds it there
            mounter.mount_all(ORIGIN, [mount])
        assert (self.folder(tmp_path) / "deep" / "data" / "note").read_text() == "kept"
        mounter.unmount_all(ORIGIN.attempt)
        assert not self.folder(tmp_path).exists()
        assert (volume / "in" / "note").read_text() == "kept"

    @pytest.mark.usefixtures("as_user")
    @pytest.mark.parametrize(
        ("mount", "words"),
        [
            (a_mount("local", path="/tmp", read_only=True), "only root can mount a folder read-only"),
            (a_mount("nfs", server="127.0.0.1", path="/"), "only root can mount it"),
        ],
    )
    def test_what_takes_root_says_so(self, mounter: Mounter, mount: Mount, words: str) -> None:
        with pytest.raises(SetupError, match=words):
            mounter.mount_all(ORIGIN, [mount])

    @pytest.mark.parametrize(("sub_path", "words"), [("out", "Not a directory"), ("in/note", "Not a directory")])
    def test_no_way_leads_out_of_a_volume(self, mounter: Mounter, volume: Path, sub_path: str, words: str) -> None:
        with pytest.raises(SetupError, match=words):
            mounter.mount_all(ORIGIN, [a_mount("local", sub_path, path=str(volume))])

    @pytest.mark.usefixtures("as_user")
    def test_all_or_none(self, mounter: Mounter, volume: Path, tmp_path: Path) -> None:
        good = a_mount("local", path=str(volume))
        with pytest.raises(SetupError, match=r"volume data-a \(pvc\) cannot be mounted on nodes that already run"):
            mounter.mount_all(ORIGIN, [good, a_mount("pvc")._replace(path="other")])
        assert not self.folder(tmp_path).exists()

    @pytest.mark.usefixtures("as_user")
    def test_what_is_in_use_stays_when_another_fails(self, mounter: Mounter, volume: Path, tmp_path: Path) -> None:
        good, bad = a_mount("local", path=str(volume)), a_mount("local", path="/nowhere")._replace(path="other")
        mounter.mount_all(ORIGIN, [good])
        with pytest.raises(SetupError, match="no folder to mount at /nowhere"):
            mounter.mount_all(ORIGIN, [good, bad])
        assert (self.folder(tmp_path) / "deep" / "data" / "in" / "note").read_text() == "kept"

    def test_a_missing_program_is_named(self, mounter: Mounter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mounting.shutil, "which", lambda *_, **__: None)
        monkeypatch.setattr(mounting, "credentials_of", lambda _origin: {"data-a": KEYS})
        mount = a_mount("s3", bucket="b")._replace(needs_credential=True)
        with pytest.raises(SetupError, match="s3fs is missing on this node; install the package s3fs there"):
            mounter.mount_all(ORIGIN, [mount])

    def test_whatever_is_not_ours_stays(self, mounter: Mounter, tmp_path: Path) -> None:
        left = self.folder(tmp_path) / "by-the-job"
        left.parent.mkdir(parents=True)
        left.write_text("x")
        mounter.unmount_all(ORIGIN.attempt)
        assert left.read_text() == "x"


def test_a_program_that_does_not_come_back_is_left() -> None:
    assert system.run(["sleep", "60"], within_s=0.2) == system.Done(None, "")


def test_programs_see_neither_keys_nor_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWSACCESSKEYID", "https_proxy"):
        monkeypatch.setenv(name, "x")
    assert not {"AWS_SECRET_ACCESS_KEY", "AWSACCESSKEYID", "https_proxy"} & set(
        system.run(["env"], 5).output.replace("=", "\n").splitlines()
    )
