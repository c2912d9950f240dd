"""What the local backend knows of its clusters, one private JSON file each, so that any later process can take over."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from cluster_groups.model.cluster import HEAD_GROUP, Endpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalNode:
    """One `ray start`. `folder` is the intent, stored before the process starts, and what the process is found by."""

    name: str
    group: str
    ip: str
    folder: str | None = None
    pid: int | None = None
    started_at: float = 0

    @property
    def is_head(self) -> bool:
        return self.group == HEAD_GROUP

    @property
    def own_folder(self) -> str:
        """Where volumes are mounted and large packages unpacked."""
        return f"{self.folder}.own"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalCluster:
    id: str
    folder: str
    token: str = field(repr=False)
    dashboard_port: int
    nodes: tuple[LocalNode, ...]
    ports_tried: int = 1
    starts: int = 0
    """Counts every start of a node: each gets a folder of its own, so a folder names one process for good."""
    came_up: bool = False
    stopping_since: float | None = None

    @property
    def head(self) -> LocalNode:
        return self.nodes[0]

    @property
    def token_path(self) -> str:
        return f"{self.folder}/token"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(address=f"http://127.0.0.1:{self.dashboard_port}", token=self.token)

    def with_node(self, node: LocalNode) -> "LocalCluster":
        return replace(self, nodes=tuple(node if old.name == node.name else old for old in self.nodes))


class StateFolder:
    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ids(self) -> Sequence[str]:
        return sorted(path.stem for path in self._root.glob("*.json"))

    def load(self, cluster_id: str) -> LocalCluster | None:
        try:
            stored = json.loads(self._path(cluster_id).read_text())
        except FileNotFoundError:
            return None
        nodes = tuple(LocalNode(**node) for node in stored.pop("nodes"))
        return LocalCluster(**stored, nodes=nodes)

    def save(self, cluster: LocalCluster) -> None:
        """Whole or not at all, whenever the machine stops."""
        path = self._path(cluster.id)
        draft = path.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(cluster), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def remove(self, cluster_id: str) -> None:
        self._path(cluster_id).unlink(missing_ok=True)

    def _path(self, cluster_id: str) -> Path:
        return self._root / f"{cluster_id}.json"
