"""Pure: a mount of an attempt → the command that makes it (storage.md §1, §3). Values that could be options are not."""

from __future__ import annotations

import re

from .terms import Credential, Mount, SetupError

_SAFE = re.compile(r"[A-Za-z0-9_./=:-]*")
"""Of what goes into an option list, where a comma would begin another option."""

_NFS_OPTIONS = "vers=4.0,noresvport"
_NFS3_OPTIONS = "vers=3,nolock,proto=tcp,noresvport"
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:<Message>([^<]*)</Message>)?")
"""Of S3 and COS."""
_STALE_AFTER_S = 5
"""Others write to the same bucket; s3fs itself would believe for 15 minutes what it has once seen."""
_MAX_WORDS = 40

BUCKETS = frozenset({"s3", "cos"})
SERVERS = frozenset({"nfs", "cfs"})


def bucket_command(program: str, mount: Mount, target: str, own: str, user: tuple[int, int]) -> list[str]:
    """In the foreground, so that its words and its end are seen. `own` is a private folder, `user` a uid and gid."""
    source = mount.source
    options = {
        "passwd_file": passwd_file(own),
        "url": _endpoint(mount),
        "endpoint": source.get("region") or "us-east-1",
        "tmpdir": own,
        "stat_cache_expire": str(_STALE_AFTER_S),
        "connect_timeout": "10",
        "retries": "2",
        "dbglevel": "err",
    }
    if user[0] != 0:
        options |= {"uid": str(user[0]), "gid": str(user[1])}
    flags = ["complement_stat"]  # else what was not written by s3fs has no mode
    if mount.type == "s3" and source.get("endpoint"):
        flags.append("use_path_request_style")
    if mount.read_only:
        flags.append("ro")
    if not all(_SAFE.fullmatch(value) for value in options.values()):
        raise SetupError(f"{mount}: its endpoint or region holds characters that are not allowed")
    values = [*flags, *(f"{name}={value}" for name, value in options.items())]
    what = f"{source['bucket']}:/{inner_path(mount)}"
    return [program, what, target, "-f", *(word for value in values for word in ("-o", value))]


def client_says(log: bytes) -> str:
    """Why it ended, from its words: the store's own answer where there is one."""
    text = log.decode(errors="replace")
    if answers := _ANSWER.findall(text):
        return ": ".join(filter(None, answers[-1]))
    return " ".join(text.split()[-_MAX_WORDS:])


def server_command(mount: Mount, target: str) -> list[str]:
    source = mount.source
    options, host = _NFS_OPTIONS, source.get("server") or source["host"]
    if mount.type == "cfs" and source.get("vers") == "3":
        options = _NFS3_OPTIONS
    if mount.read_only:
        options += ",ro"
    address = f"[{host}]" if ":" in host else host
    return ["mount", "-t", "nfs", "-o", options, f"{address}:/{inner_path(mount)}", target]


def passwd_file(own: str) -> str:
    return f"{own}/passwd"


def passwd_line(mount: Mount, credential: Credential) -> str:
    return f"{mount.source['bucket']}:{credential['key_id']}:{credential['secret_key']}\n"


def inner_path(mount: Mount) -> str:
    """From the root of the bucket or of the share, without slashes at its ends."""
    return "/".join(part for part in (mount.source.get("path", "").strip("/"), mount.sub_path) if part)


def _endpoint(mount: Mount) -> str:
    region = mount.source.get("region")
    if mount.type == "cos":
        return f"https://cos.{region}.myqcloud.com"
    return mount.source.get("endpoint") or f"https://s3.{region or 'us-east-1'}.amazonaws.com"
