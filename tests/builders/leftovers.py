"""The last resort of tests that start a service: its clusters' processes and folders go, however it ended."""

import shutil
from pathlib import Path

from cluster_groups.backends.local_processes import kill_all_of
from cluster_groups.backends.local_state import StateFolder
from runtime_envs.node_plugin.system import unmount_below
from tests.builders.waiting import wait_until


def end_leftovers(state_dir: Path) -> None:
    state = StateFolder(state_dir / "local")
    for cluster in filter(None, map(state.load, state.ids())):
        token = cluster.token_path
        wait_until(lambda: not kill_all_of(token), 20, lambda: token)  # noqa: B023 - called within this round
        assert not unmount_below(cluster.folder)
        shutil.rmtree(cluster.folder, ignore_errors=True)
        state.remove(cluster.id)
