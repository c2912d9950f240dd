"""What the service tells the nodes about an attempt, inside its runtime_env, and how nodes prove to be of a cluster.

Nothing here is a secret: Ray shows a runtime_env to everybody on the cluster.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

MOUNTS_KEY, PACKAGE_KEY = "muster_mounts", "muster_package"
"""Two keys, as Ray keeps one cache for each: mounts go with their last use, packages stay while there is room."""

NODE_ROOT = "MUSTER_NODE_ROOT"
"""Variable of a node: the private folder below which everything lies that is mounted or unpacked there."""
MOUNT_TIMEOUT = "MUSTER_NODE_MOUNT_TIMEOUT_S"
"""Variable of a node: how long one volume may take to answer. Ray tries thrice."""
MOUNT_TIMEOUT_S = 30.0
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable

_ATTEMPT = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


Credential = Mapping[str, Any]
"""`key_id`, `secret_key`, and a `token` where these hold for a while only."""


class SetupError(RuntimeError):
    """Shown to the owner of the run, at the end of Ray's own report."""

    def __init__(self, text: str) -> None:
        super().__init__(f"muster: {text}")
        self.text = text


class Origin(NamedTuple):
    """Whom a node asks, and for whom."""

    attempt: str
    callback: str | None


class Mount(NamedTuple):
    """`path` is relative to the attempt's folder, `sub_path` to the volume's own path."""

    volume: str
    type: str
    source: Mapping[str, str]
    path: str
    sub_path: str = ""
    read_only: bool = False
    needs_credential: bool = False

    @property
    def variable(self) -> str:
        return mount_variable(self.volume)

    def __str__(self) -> str:
        return f"volume {self.volume} ({self.type})"


class PackageTerms(NamedTuple):
    sha256: str
    size_bytes: int


def mount_variable(volume: str) -> str:
    """What a task finds the volume's path in."""
    return f"MUSTER_MOUNT_{volume.upper().replace('-', '_')}"


def mounts_field(origin: Origin, mounts: list[Mount]) -> dict[str, Any]:
    return {**origin._asdict(), "mounts": [mount._asdict() for mount in mounts]}


def package_field(origin: Origin, package: PackageTerms) -> dict[str, Any]:
    return {**origin._asdict(), **package._asdict()}


def read_mounts(field: Mapping[str, Any]) -> tuple[Origin, list[Mount]]:
    """Raises SetupError: any job of the cluster may have written it."""
    try:
        origin, mounts = _origin(field), [Mount(**mount) for mount in field["mounts"]]
        are_inside = all(mount.path and is_inside(mount.path) and is_inside(mount.sub_path) for mount in mounts)
    except (AttributeError, KeyError, TypeError) as error:
        raise SetupError(f"the field {MOUNTS_KEY} of the runtime_env is malformed: {error!r}") from error
    if not are_inside:
        raise SetupError(f"the field {MOUNTS_KEY} of the runtime_env leads out of its folder")
    return origin, mounts


def read_package(field: Mapping[str, Any]) -> tuple[Origin, PackageTerms]:
    try:
        origin, package = _origin(field), PackageTerms(field["sha256"], int(field["size_bytes"]))
        is_sha256 = _SHA256.fullmatch(package.sha256)
    except (KeyError, TypeError, ValueError) as error:
        raise SetupError(f"the field {PACKAGE_KEY} of the runtime_env is malformed: {error!r}") from error
    if not is_sha256:
        raise SetupError(f"the field {PACKAGE_KEY} of the runtime_env names no sha256")
    return origin, package


def is_inside(relative: str) -> bool:
    """Below whatever it is joined to, wherever that is."""
    parts = relative.split("/") if relative else []
    return not {"", ".", ".."} & set(parts) and "\0" not in relative


def bearer(cluster_token: str, attempt: str) -> str:
    """Whoever knows the cluster's own token can make it, and nobody else: so nothing secret has to be sent there."""
    return hmac.new(cluster_token.encode(), f"muster: what {attempt} needs".encode(), hashlib.sha256).hexdigest()


def node_bearer(attempt: str) -> str:
    try:
        with open(os.environ[TOKEN_PATH], encoding="utf-8") as file:
            return bearer(file.read().strip(), attempt)
    except (KeyError, OSError) as error:
        raise SetupError(f"this node has no token of its cluster to show to Muster: {error}") from error


def node_root() -> str:
    root = os.environ.get(NODE_ROOT)
    if not root:
        raise SetupError(f"this node was started without {NODE_ROOT}")
    return root


def _origin(field: Mapping[str, Any]) -> Origin:
    attempt, callback = field["attempt"], field.get("callback")
    if not _ATTEMPT.fullmatch(attempt):
        raise SetupError("the runtime_env names no attempt of Muster's")
    return Origin(attempt, callback)
