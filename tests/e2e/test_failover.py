"""Clusters that are stopped, killed, frozen and cut off under runs, and a service that is away: at most once, and told.

What a run's command writes to the journal is the proof, not what Muster says of it.
"""

import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import httpx
import psutil
import pytest

from cluster_groups.backends.local_state import LocalCluster, StateFolder
from tests.builders.waiting import wait_until
from tests.builders.wire import Wire, wire
from tests.e2e.conftest import SAMPLE
from tests.e2e.journal import BEAT_S, Journal, assert_never_two
from tests.e2e.support import Json, Service, running

pytestmark = pytest.mark.ray

LEASE_TTL_S = 30
LOST_TIMEOUT_S = LEASE_TTL_S + 90
GRACE_S = 2
UP_S = 120
SOON_S = 30
"""For a driver to start, on a busy machine."""
UNHEALTHY_S = 90
"""For three bad looks, and what they set off."""
FALLEN_S = 60
RENEWED_S = 15
"""Before a cut, the last renewal was no longer ago than that."""
MOVED_S = LOST_TIMEOUT_S + 60
BACK_S = 150
"""A minute of good looks, and what is stale has ended."""
AWAY_S = LEASE_TTL_S + 15
POOL = "drills"
ROOM = {"near": 4, "far": 4, "spare": 40}
"""CPUs for runs; Ray is only told of them."""
BIG = 3
"""CPUs of a run that has to wait while two small ones run."""


@dataclass(frozen=True, slots=True)
class Lab:
    service: Service
    journal: Journal
    callback: Wire
    detour: Wire
    """The only way from the service to the cluster `remote`, which is `far` under the address of this wire."""

    def group(self, name: str, *members: str) -> None:
        listed = [{"cluster": cluster, "tier": tier} for tier, cluster in enumerate(members)]
        policy = {
            "preset": "failover",
            "spill_after_s": 86400,
            "failback_stable_s": 0,
            "on_cluster_loss": "redispatch",
            "lost_timeout_s": LOST_TIMEOUT_S,
        }
        self.create("group", {"name": name, "members": listed, "policy": policy})

    def job(self, name: str, gate: str, *, cpu: float = 1, attempts: int = 2, **target: str) -> None:
        body = {
            "name": name,
            "run_mode": next(iter(target)),
            **target,
            "package": self.service.folder.joinpath("package").read_text(),
            "entrypoint": self.journal.command(gate),
            "requirements": {"cpu": cpu},
            "retry": {"max_attempts": attempts, "on": ["lost"]},
            "stop_grace_s": GRACE_S,
        }
        self.create("job", body)

    def create(self, noun: str, body: Json) -> None:
        file = self.service.folder / "body.json"
        file.write_text(json.dumps(body))
        self.service.done(*noun.split(), "create", "-f", file)

    def get(self, path: str, **params: int) -> Json:
        return self._ask("GET", path, params=params)

    def submit(self, job: str) -> str:
        return self.service.done("run", "submit", job)

    def submit_many(self, job: str, count: int) -> list[str]:
        """Past the command line, of which each call takes a second."""
        return [str(self._ask("POST", f"jobs/{job}/runs")["id"]) for _ in range(count)]

    def executes(self, *runs: str) -> bool:
        """Each now and then heard of."""
        return all(self.journal.executions(run) for run in runs)

    def cluster(self, name: str) -> LocalCluster:
        found = StateFolder(self.service.state_dir / "local").load(self.get(f"clusters/{name}")["id"])
        assert found is not None
        return found

    def processes(self, name: str) -> list[psutil.Process]:
        """Of the cluster's nodes, with all that came of them: their guards, drivers, and what runs ran."""
        guards = {node.pid for node in self.cluster(name).nodes}
        nodes = [one for one in psutil.process_iter() if one.pid in guards]
        return [one for node in nodes for one in (node, *node.children(recursive=True))]

    def launch(self) -> None:
        """Those that are down, in the background of what comes next."""
        for name in ROOM:
            if self.get(f"clusters/{name}")["state"] in {"CREATED", "STOPPED", "FAILED"}:
                self.service.done("cluster", "start", name)

    def wait_healthy(self, *names: str) -> None:
        def ready() -> bool:
            clusters = [self.get(f"clusters/{name}") for name in names]
            return all(one["health"]["status"] == "HEALTHY" and one["can_call_back"] for one in clusters)

        wait_until(ready, UP_S, lambda: [self.get(f"clusters/{name}") for name in names], 0.5)

    def _ask(self, method: str, path: str, **more: Any) -> Json:
        token = (self.service.state_dir / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"{self.service.address}/api/v1/", headers=headers, trust_env=False) as client:
            return dict(client.request(method, path, **more).raise_for_status().json())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with wire() as callback, wire() as detour:
        lease = {"MUSTER_LEASE_TTL_S": str(LEASE_TTL_S), "MUSTER_CALLBACK_URL": callback.url}
        folder = tmp_path_factory.mktemp("failover")
        with running(Service(folder / "muster", **lease)) as service:
            callback.to = int(service.address.rpartition(":")[2])
            service.folder.joinpath("package").write_text(service.done("package", "upload", SAMPLE, "-o", "name"))
            lab = Lab(service, Journal(folder / "journal"), callback, detour)
            _make_clusters(lab)
            yield lab
            for one in (callback, detour):  # what a failed drill has cut
                one.mend()


def _make_clusters(lab: Lab) -> None:
    amounts = {"cpu": 100, "memory_gib": 100}
    lab.create("quota package", {"name": POOL, "capacity": amounts})
    lab.create("quota group", {"name": POOL, "resource_package": POOL, "quota": amounts})
    for name, cpu in ROOM.items():
        workers = [{"name": "w", "cpu": cpu, "memory_gib": 2}]
        pool = {"resource_package": POOL, "resource_group": POOL}
        lab.create("cluster", {"name": name, "head": {"cpu": 1, "memory_gib": 10}, "worker_groups": workers, **pool})
    lab.launch()


@pytest.fixture(autouse=True)
def _as_before(lab: Lab) -> Iterator[None]:
    """Whatever a failed drill has left."""
    yield
    if lab.get("clusters/near")["state"] == "RUNNING":
        thaw(lab, "near")
    for run in lab.get("runs", limit=500)["items"]:
        if not run["ended_at"]:
            lab.service.done("run", "stop", run["id"])
    lab.launch()


@dataclass(frozen=True, slots=True)
class Crowd:
    """Runs of one group in all states at the moment its first member is lost."""

    running: tuple[str, ...]
    waiting: str
    starting: str

    @classmethod
    def on(cls, lab: Lab, name: str, *members: str) -> "Crowd":
        lab.group(name, *members)
        lab.job(f"{name}-small", name, cluster_group=name)
        lab.job(f"{name}-big", name, cluster_group=name, cpu=BIG)
        running = tuple(lab.submit(f"{name}-small") for _ in range(2))
        wait_until(lambda: lab.executes(*running), SOON_S)
        waiting = lab.submit(f"{name}-big")
        assert lab.service.muster("run", "wait", waiting, "--for", "WAITING").code == 0
        return cls(running, waiting, lab.submit(f"{name}-small"))

    @property
    def placed(self) -> tuple[str, ...]:
        return (*self.running, self.starting)


def test_stopped_and_killed(lab: Lab) -> None:
    """By a person, and as by a crash of the head's own processes: what ran there is left to its guards."""
    lab.wait_healthy(*ROOM)
    stopped, killed = Crowd.on(lab, "stop", "near", "spare"), Crowd.on(lab, "kill", "far", "spare")
    crash_head(lab, "far")
    lab.service.done("cluster", "stop", "near", "--force")
    moved = (*killed.placed, killed.waiting)
    wait_until(lambda: runs_on_spare(lab, *moved, stopped.waiting), FALLEN_S, every_s=0.2)
    finish(lab, "kill", moved)
    finish(lab, "stop", [stopped.waiting])
    for run in killed.placed:
        assert_moved(lab, run, "far", "spare", lost="HEAD_LOST")
    assert_once(lab, killed.waiting, "spare")
    assert_once(lab, stopped.waiting, "spare")
    for run in stopped.placed:
        shown = lab.get(f"runs/{run}")
        assert (shown["state"], shown["end"]["code"], len(shown["attempts"])) == ("STOPPED", "FORCED", 1), shown
        assert_never_two(lab.journal.executions(run))


def test_away(lab: Lab) -> None:
    """The service, for longer than a lease: whatever has none goes on, also to its end."""
    lab.wait_healthy("spare")
    lab.group("away", "spare")
    for gate in ("early", "late"):
        lab.job(gate, gate, cluster_group="away", attempts=1)
    lab.job("leased", "never", cluster_group="away")
    early, late = (lab.submit_many(gate, 10) for gate in ("early", "late"))
    leased = lab.submit("leased")
    wait_until(lambda: lab.executes(*early, *late, leased), 60)
    lab.service.stop()
    stopped_at = time.time()
    lab.journal.open("early")
    wait_until(lambda: time.time() > stopped_at + AWAY_S, AWAY_S + 1, every_s=1)
    lab.service.start()
    finish(lab, "early", early)
    finish(lab, "late", late)
    for run in (*early, *late):
        assert_once(lab, run, "spare")
        assert lab.journal.executions(run)[0].longest_silence_s < 20 * BEAT_S
    assert stopped_at < lab.journal.executions(leased)[0].last_at < stopped_at + LEASE_TTL_S + GRACE_S + 1
    lab.service.done("run", "stop", leased)


@pytest.mark.timeout(480)
def test_frozen_and_cut_off(lab: Lab) -> None:
    """Both at once, as they wait for the same. The cut one's way to the service is cut later: it goes on till then.

    Neither has been ill lately, else it would be held out as one that flaps.
    """
    lab.wait_healthy(*ROOM)
    attach(lab)
    frozen, cut = Crowd.on(lab, "freeze", "near", "spare"), Crowd.on(lab, "cut", "remote", "spare")
    lost_at = time.time()
    freeze(lab, "near")
    lab.detour.cut()
    late = lab.submit("cut-small")  # nobody knows yet: its submission arrives when the cut is over
    assert lab.service.muster("run", "wait", late, "--for", "STARTING").code == 0
    assert lab.get(f"runs/{late}")["cluster"] == "remote"
    wait_until(lambda: time.time() > lost_at + LEASE_TTL_S, LEASE_TTL_S + 1, every_s=0.2)
    cut_at = time.time()
    lab.callback.cut(*cut.placed)
    wait_until(lambda: runs_on_spare(lab, frozen.waiting, cut.waiting), UNHEALTHY_S, every_s=0.5)
    for run in (*frozen.running, *cut.running):
        wait_until(lambda run=run: is_told_lost(lab, run), SOON_S, every_s=0.5)  # type: ignore[misc]
    wait_until(lambda: runs_on_spare(lab, *frozen.placed), MOVED_S, every_s=0.5)
    thawed_at = time.time()
    thaw(lab, "near")
    lab.journal.open("again")
    lab.job("again", "again", cluster="near")
    again = lab.submit("again")
    wait_until(lambda: runs_on_spare(lab, *cut.placed, late), MOVED_S, every_s=0.5)
    lab.callback.mend()
    lab.detour.mend()
    wait_until(lambda: ray_status(lab, "far", f"{late}-a1") == "FAILED", SOON_S, every_s=0.5)
    said = lab.service.muster("run", "wait", again, "--timeout", str(BACK_S))
    assert said.code == 0, said
    stale_until = max(moment(lab, run, "ATTEMPT_ENDED") for run in frozen.placed)
    assert stale_until < moment(lab, again, "STARTING")
    finish(lab, "freeze", (*frozen.placed, frozen.waiting))
    finish(lab, "cut", (*cut.placed, cut.waiting, late))
    for run in frozen.placed:
        assert_moved(lab, run, "near", "spare", lost="CLUSTER_LOST", thawed_at=thawed_at)
    for run in (*cut.placed, late):
        assert_moved(lab, run, "remote", "spare", lost="CLUSTER_LOST")
    for run in (frozen.waiting, cut.waiting):
        assert_once(lab, run, "spare")
    for run in cut.running:
        first, second = lab.journal.executions(run)
        assert cut_at < first.last_at < cut_at + LEASE_TTL_S + GRACE_S + 2
        assert second.began_at > cut_at + LOST_TIMEOUT_S - RENEWED_S
    assert [one.attempt for one in lab.journal.executions(late)] == [2]


def is_told_lost(lab: Lab, run: str) -> bool:
    shown = lab.get(f"runs/{run}")
    return (shown["state"], (shown["condition"] or {}).get("code")) == ("RUNNING", "CLUSTER_LOST")


def moment(lab: Lab, run: str, what: str) -> str:
    """When that was first told of the run."""
    return next(str(event["at"]) for event in events(lab, run) if event["type"] == what)


def ray_status(lab: Lab, cluster: str, submission: str) -> str | None:
    """In Ray's own words, past all wires."""
    endpoint = lab.cluster(cluster).endpoint
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    answer = httpx.get(f"{endpoint.address}/api/jobs/{submission}", headers=headers, trust_env=False)
    return answer.json()["status"] if answer.is_success else None


def crash_head(lab: Lab, cluster: str) -> None:
    for process in psutil.Process(lab.cluster(cluster).head.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() in {"gcs_server", "raylet"}:
                process.kill()


def attach(lab: Lab) -> None:
    """`far` under another name, and by way of a wire."""
    far = lab.cluster("far")
    lab.detour.to = far.dashboard_port
    lab.create("credential", {"name": "far", "type": "ray_token", "data": {"token": far.token}})
    lab.create("cluster", {"name": "remote", "kind": "attached", "address": lab.detour.url, "credential": "far"})
    lab.wait_healthy("remote")


def freeze(lab: Lab, cluster: str) -> None:
    """As when its machines are paused: nobody of it goes on."""
    stopped: set[int] = set()
    while left := [one for one in lab.processes(cluster) if one.pid not in stopped]:
        for process in left:
            stopped.add(process.pid)
            with suppress(psutil.NoSuchProcess):
                process.suspend()


def thaw(lab: Lab, cluster: str) -> None:
    for process in lab.processes(cluster):
        with suppress(psutil.NoSuchProcess):  # its guard was faster
            process.send_signal(signal.SIGCONT)


def runs_on_spare(lab: Lab, *runs: str) -> bool:
    shown = (lab.get(f"runs/{run}") for run in runs)
    return all((one["state"], one["cluster"]) == ("RUNNING", "spare") for one in shown)


def finish(lab: Lab, gate: str, runs: Sequence[str]) -> None:
    lab.journal.open(gate)
    wait_until(lambda: all(lab.get(f"runs/{run}")["ended_at"] for run in runs), 60, every_s=0.2)


def assert_moved(lab: Lab, run: str, first: str, second: str, *, lost: str, thawed_at: float = inf) -> None:
    """It ran to its end, once, on the second cluster, and everybody knows why it is there."""
    shown = lab.get(f"runs/{run}")
    assert (shown["state"], shown["cluster"]) == ("SUCCEEDED", second), shown
    attempts = [(one["epoch"], one["cluster"], one["end"]["code"]) for one in shown["attempts"]]
    assert attempts == [(1, first, lost), (2, second, "ALL_TASKS_DONE")]
    assert lab.service.why(run)["decisions"][-1]["chosen"] == second
    told = [event for event in events(lab, run) if event["type"] in {"STARTING", "WAITING"}]
    assert [one["params"].get("cluster") for one in told] == [first, None, second], told
    assert (told[1]["params"]["code"], told[1]["params"]["params"]["because"]) == ("RETRY_BACKOFF", lost)
    executions = lab.journal.executions(run)
    assert_never_two(executions, thawed_at)
    last = executions[-1]
    assert (last.attempt, last.previous_cluster, last.words[-1]) == (2, first, "end"), last


def assert_once(lab: Lab, run: str, cluster: str) -> None:
    shown = lab.get(f"runs/{run}")
    assert (shown["state"], [one["cluster"] for one in shown["attempts"]]) == ("SUCCEEDED", [cluster]), shown
    (execution,) = lab.journal.executions(run)
    assert (execution.attempt, execution.previous_cluster, execution.words[-1]) == (1, None, "end")


def events(lab: Lab, run: str) -> list[Json]:
    """In the order in which they happened."""
    return sorted(lab.get(f"runs/{run}/events", limit=500)["items"], key=lambda event: event["id"])
