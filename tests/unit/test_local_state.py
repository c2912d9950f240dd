from dataclasses import replace
from pathlib import Path

from cluster_groups.backends.local_state import LocalCluster, LocalNode, StateFolder

HEAD = LocalNode(name="head", group="head", ip="127.0.0.2", folder="/tmp/m/0", pid=7, started_at=1.5)
CLUSTER = LocalCluster(
    id="clu_1", folder="/tmp/m", token="secret", dashboard_port=20001, nodes=(HEAD, replace(HEAD, name="w-0", pid=None))
)


def test_what_was_saved_is_there_for_the_next_process(tmp_path: Path) -> None:
    StateFolder(tmp_path / "new").save(CLUSTER)
    later = StateFolder(tmp_path / "new")
    assert later.ids() == ["clu_1"]
    assert later.load("clu_1") == CLUSTER
    later.save(replace(CLUSTER, starts=2))
    assert later.load("clu_1") == replace(CLUSTER, starts=2)
    later.remove("clu_1")
    later.remove("clu_1")
    assert (later.ids(), later.load("clu_1")) == ([], None)


def test_only_the_owner_may_read_and_no_half_file_stays(tmp_path: Path) -> None:
    StateFolder(tmp_path / "s").save(CLUSTER)
    files = list((tmp_path / "s").iterdir())
    assert [(file.name, file.stat().st_mode & 0o777) for file in files] == [("clu_1.json", 0o600)]
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


def test_the_token_stays_out_of_texts() -> None:
    assert "secret" not in repr(CLUSTER)
    assert "secret" not in repr(CLUSTER.endpoint)
    assert CLUSTER.endpoint.token == "secret"
