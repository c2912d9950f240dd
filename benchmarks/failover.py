"""A primary that is killed under a run: how long until the run is RUNNING on another member of its group."""

import time
from collections.abc import Sequence
from typing import Any

import psutil

from benchmarks.report import Row
from benchmarks.service import FINAL, Service, service, wait_for
from cluster_groups.backends.local_state import StateFolder

GRACE_S = 5
GOAL_S = GRACE_S + 5.0
"""No attempt may follow before everything on the fallen cluster has ended; that is what the grace is for."""
PATIENCE_S = 300.0


def measure(scale: float) -> Sequence[Row]:
    """One take."""
    del scale
    with service() as muster:
        for name in ("primary", "standby"):
            muster.add_cluster(name, head_gib=4)
        for name in ("primary", "standby"):
            muster.wait_for_cluster(name)
        took_s = _killed_to_running(muster)
    return [
        Row(
            what="a primary's head is killed: until its run is RUNNING on the standby",
            ours=f"{took_s:.1f} s",
            goal=f"≤ {GOAL_S:.0f} s (a grace of {GRACE_S} s and 5 s)",
            met=took_s <= GOAL_S,
        )
    ]


def _killed_to_running(muster: Service) -> float:
    members = [{"cluster": "primary"}, {"cluster": "standby", "tier": 1}]
    policy = {"preset": "failover", "on_cluster_loss": "redispatch"}
    muster.post("/cluster-groups", {"name": "g", "members": members, "policy": policy})
    what = {"package": muster.add_package(), "entrypoint": "sleep 600", "stop_grace_s": GRACE_S}
    where = {"run_mode": "cluster_group", "cluster_group": "g", "retry": {"max_attempts": 2, "on": ["lost"]}}
    muster.post("/jobs", {"name": "moves", **what, **where})
    run = muster.post("/jobs/moves/runs")["id"]
    wait_for(lambda: _runs_on(muster, run, "primary"), PATIENCE_S, "the run on the primary")
    _kill_head(muster, "primary")
    began = time.monotonic()
    wait_for(lambda: _runs_on(muster, run, "standby"), PATIENCE_S, "the run on the standby")
    took_s = time.monotonic() - began
    muster.post(f"/runs/{run}/stop")
    wait_for(lambda: _run(muster, run)["state"] == "STOPPED", PATIENCE_S, "the end of the run")
    return took_s


def _run(muster: Service, run: str) -> Any:
    return muster.get(f"/runs/{run}")


def _runs_on(muster: Service, run: str, cluster: str) -> bool:
    about = _run(muster, run)
    assert about["state"] not in FINAL, about["end"]
    return bool(about["state"] == "RUNNING" and about["cluster"] == cluster)


def _kill_head(muster: Service, name: str) -> None:
    known = StateFolder(muster.state_dir / "local").load(muster.get(f"/clusters/{name}")["id"])
    assert known is not None
    (head,) = (psutil.Process(node.pid) for node in known.nodes if node.name == "head" and node.pid)
    for process in (head, *head.children(recursive=True)):
        process.kill()
