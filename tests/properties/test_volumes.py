"""Whatever is sent as a volume or a mount: no surprise, and nothing accepted that leads out or means something else."""

import posixpath
import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_envs.volumes.check import VolumeRules, check_mounts, check_volume, with_defaults
from runtime_envs.volumes.model import Mount, NewVolume, VolumeType

SOURCES = {
    VolumeType.COS: {"bucket": "data-1250000000", "region": "ap-guangzhou", "path": "/a/b"},
    VolumeType.S3: {"bucket": "data.sets", "region": "eu-west-1", "endpoint": "https://s3.example:9000", "path": "/a"},
    VolumeType.CFS: {"host": "10.0.0.2", "path": "/a", "vers": "4"},
    VolumeType.CFS_TURBO: {"host": "fs.example", "fsid": "a1b2", "path": "/", "proto": "nfs"},
    VolumeType.GOOSEFS: {"claim_name": "goose", "path": "/a"},
    VolumeType.NFS: {"server": "nfs.example", "path": "/export"},
    VolumeType.PVC: {"claim_name": "a.b-c", "path": "/"},
    VolumeType.LOCAL: {"path": "/data"},
}
SPICE = (
    "",
    "a",
    "/",
    "..",
    "/../",
    "//",
    ".",
    "-",
    ":",
    ",ro",
    " ",
    "\0",
    "\n",
    ";id",
    "$(id)",
    "`id`",
    "@h",
    "é",
    "'",
)
STEPS = ("a", "b", "数据", "mnt", "muster", "etc", "usr", "tmp", "ray", "..", ".", "", "a b", "a;b", "-o")
OF_A_SHELL = re.compile(r"[;&|<>$`'\"\\()*?\[\]{}!#~%^\x00-\x1f]")
RESERVED = {"bin", "dev", "etc", "lib", "proc", "sys", "usr"}


@st.composite
def changed(draw: st.DrawFn, value: str) -> str:
    """With something put in anywhere, or in its place."""
    spice = draw(st.sampled_from(SPICE) | st.text(max_size=8))
    start = draw(st.integers(0, len(value)))
    end = draw(st.sampled_from((start, len(value))))
    return value[:start] + spice + value[end:]


@st.composite
def volumes(draw: st.DrawFn) -> NewVolume:
    kind = draw(st.sampled_from(VolumeType))
    source = dict(SOURCES[kind])
    for name in draw(st.sets(st.sampled_from(sorted(source)), max_size=2)):
        source[name] = draw(changed(source[name]))
    return NewVolume(name="v", type=kind, source=source, credential=None)


PATHS = st.lists(st.sampled_from(STEPS), max_size=4).map("/".join)
MOUNTS = st.builds(
    Mount,
    volume=st.just("v"),
    mount_path=PATHS.map("/{}".format) | st.text(max_size=8),
    sub_path=PATHS | st.text(max_size=8),
    read_only=st.booleans(),
)


@given(volumes())
@settings(max_examples=1500, deadline=None)
def test_volumes(new: NewVolume) -> None:
    new = with_defaults(new)
    problems = [one for one in check_volume(new, VolumeRules()) if one.pointer != "/credential"]
    assert all((one.pointer or "").startswith("/source/") for one in problems)
    if problems:
        return
    for name, value in new.source.items():
        assert value.isascii()
        assert not OF_A_SHELL.search(value)
        assert not re.search(r"\s", value)
        assert "," not in value or name == "path"
        assert not value.startswith("-")
    assert posixpath.normpath(new.source["path"]) == new.source["path"]


@given(st.lists(MOUNTS, max_size=4))
@settings(max_examples=1500, deadline=None)
def test_mounts(mounts: list[Mount]) -> None:
    problems = check_mounts(mounts, "/mounts")
    assert all((one.pointer or "").startswith("/mounts/") for one in problems)
    if problems:
        return
    for mount in mounts:
        path = mount.mount_path
        assert path.startswith("/")
        assert posixpath.normpath(path) == path != "/"
        assert path.split("/")[1] not in RESERVED
        assert path != "/tmp"
        assert not f"{path}/".startswith("/tmp/ray/")
        inner = posixpath.join("/volume", mount.sub_path)
        assert posixpath.normpath(inner) == inner.removesuffix("/" if not mount.sub_path else "")
        assert not OF_A_SHELL.search(path + mount.sub_path)
    folders = sorted(f"{mount.mount_path}/" for mount in mounts)
    assert not any(later.startswith(earlier) for earlier, later in pairwise(folders))
