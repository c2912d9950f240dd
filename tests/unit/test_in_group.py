"""Runs that wait for a cluster group, as admission decides on them: rooms, limits, spilling, the next look."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cluster_groups.model.cluster import ClusterState, Node
from cluster_groups.model.demand import ClusterView, Demand
from cluster_groups.model.group import GpuMatch, Member, Policy, Rank, Window
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import QueueSettings
from kernel.resources import Resources
from rayjobs.decide.admit import AdmissionPlan, Start, Wait, plan_admission
from rayjobs.model.job import RunMode
from rayjobs.model.run import Condition, RunState
from rayjobs.snapshot import HELD_ON, NO_ROOM_SINCE, AdmissionSnapshot, Held, Load, WaitingRun
from tests.builders.policies import because
from tests.builders.runs import NOW, a_cluster, a_group, a_resource_group, a_run

FULL = Load(drivers=99)
EARLIER = NOW - timedelta(seconds=300)
PAIR = (Member(cluster="c1"), Member(cluster="c2", tier=1))
TWO = (Member(cluster="c1"), Member(cluster="c2", order=1))


def a_waiting(number: int = 1, **fields: Any) -> WaitingRun:
    return a_run(number, run_mode=RunMode.CLUSTER_GROUP, **fields)


def plan(
    *runs: WaitingRun,
    members: tuple[Member, ...] = TWO,
    policy: Policy = Policy(),  # noqa: B008 - frozen
    clusters: tuple[ClusterView, ...] = (a_cluster("c1"), a_cluster("c2")),
    load: dict[str, Load] | None = None,
    now: datetime = NOW,
    **fields: Any,
) -> AdmissionPlan:
    snapshot = AdmissionSnapshot(
        runs=runs,
        clusters={view.id: view for view in clusters},
        groups={"g1": a_group(members=members, policy=policy)},
        load={f"clu_{name}": one for name, one in (load or {}).items()},
        **fields,
    )
    return plan_admission(snapshot, now)


def again(wait: Wait, now: datetime) -> WaitingRun:
    """The run as it is loaded the next time, after what it waits for was stored."""
    return replace(wait.run, state=RunState.WAITING, condition=wait.condition(now))


def only_start(result: AdmissionPlan) -> Start:
    (start,) = result.starts
    return start


class TestLimits:
    def test_of_a_member_counts_what_came_through_this_group(self) -> None:
        through = [Held(run=f"r{at}", amount=Resources(), cluster_group=name) for at, name in enumerate(("g1", "g2"))]
        load = {"c1": Load(drivers=2, held=tuple(through))}
        members = (Member(cluster="c1", max_running=2), Member(cluster="c2", order=1))
        result = plan(a_waiting(1), a_waiting(2), members=members, load=load)
        assert [start.cluster for start in result.starts] == ["c1", "c2"]
        reasons = {one["cluster"]: one["reason"] for one in result.starts[1].decision["candidates"]}
        assert reasons == {"c1": "MEMBER_LIMIT", "c2": None}

    def test_all_members_have_enough(self) -> None:
        result = plan(a_waiting(1), a_waiting(2), members=(Member(cluster="c1", max_running=1),))
        (wait,) = result.waits
        assert (wait.reason.code, wait.reason.params["running"]) == ("MEMBER_LIMIT", 1)


class TestSpill:
    def test_a_run_moves_on_when_it_has_waited_for_room(self) -> None:
        full = {"c1": FULL}
        first = plan(a_waiting(), members=PAIR, load=full)
        (wait,) = first.waits
        assert (wait.reason.code, first.next_look_s) == ("HEAD_BUSY", 300)
        assert wait.decision[NO_ROOM_SINCE] == "2026-11-30T12:00:00Z"
        assert "Tier 1 opens to it when it has waited 300 s for room" in because(wait.decision)
        waiting = again(wait, NOW)
        early = NOW + timedelta(seconds=295)
        second = plan(waiting, members=PAIR, load=full, now=early)
        assert second.next_look_s == 5
        assert second.waits[0].decision["next_evaluation_at"] == "2026-11-30T12:05:00Z"
        assert second.waits[0].condition(early).params[NO_ROOM_SINCE] == "2026-11-30T12:00:00Z"
        third = plan(waiting, members=PAIR, load=full, now=NOW + timedelta(seconds=300))
        start = only_start(third)
        assert (start.cluster, start.decision["tier"]) == ("c2", 1)
        assert "Tier 0 had no room for 300 s, so tier 1 is open" in because(start.decision)

    def test_each_run_waits_for_itself(self) -> None:
        full = {"c1": FULL}
        later = NOW + timedelta(seconds=300)
        old = again(plan(a_waiting(1), members=PAIR, load=full).waits[0], NOW)
        result = plan(old, a_waiting(2), members=PAIR, load=full, now=later)
        assert only_start(result).run.id == "run_0001"
        assert [wait.run.id for wait in result.waits] == ["run_0002"]

    def test_waiting_for_something_else_does_not_count(self) -> None:
        stopped = (a_cluster("c1", state=ClusterState.STOPPED), a_cluster("c2", state=ClusterState.STOPPED))
        (wait,) = plan(a_waiting(), members=PAIR, clusters=stopped).waits
        assert NO_ROOM_SINCE not in wait.condition(NOW).params
        later = NOW + timedelta(hours=1)
        result = plan(again(wait, NOW), members=PAIR, load={"c1": FULL}, now=later)
        assert (result.starts, result.next_look_s) == ((), 300)

    def test_at_once(self) -> None:
        result = plan(a_waiting(), members=PAIR, load={"c1": FULL}, policy=Policy(spill_after_s=0))
        assert only_start(result).cluster == "c2"

    def test_nothing_is_held_in_a_tier_that_is_not_open(self) -> None:
        queue = a_resource_group(queue=QueueSettings(reserve_after_s=0))
        two = Demand(resources=Resources(cpu=2))
        load = {
            "c1": Load(drivers=1, held=(Held(run="r1", amount=Resources(cpu=4)),)),
            "c2": Load(drivers=1, held=(Held(run="r2", amount=Resources(cpu=4), ends_by=NOW),)),
        }
        run = a_waiting(demand=two, enqueued_at=NOW)
        (wait,) = plan(run, members=PAIR, load=load, resource_groups={"default": queue}).waits
        assert wait.reason.params[HELD_ON] == "c1"
        since = Condition(code="HEAD_BUSY", owner="platform", params={NO_ROOM_SINCE: str(EARLIER)}, since=EARLIER)
        spilled = replace(run, condition=since)
        (wait,) = plan(spilled, members=PAIR, load=load, resource_groups={"default": queue}).waits
        assert wait.reason.params[HELD_ON] == "c2"
        assert wait.decision["reason"]["params"][HELD_ON] == "c2"


class TestWindows:
    DAY = Window(start="12:00", end="13:00")

    def test_a_run_starts_the_moment_one_opens(self) -> None:
        members = (Member(cluster="c1", windows=(self.DAY,)),)
        before = NOW - timedelta(seconds=7)
        closed = plan(a_waiting(), members=members, now=before)
        (wait,) = closed.waits
        assert (wait.reason.code, closed.next_look_s) == ("GROUP_WINDOW_CLOSED", 7)
        assert wait.reason.params["next_open_at"] == "2026-11-30T12:00:00Z"
        assert only_start(plan(again(wait, before), members=members)).cluster == "c1"
        assert plan(again(wait, before), members=members, now=NOW + timedelta(hours=1)).starts == ()

    def test_a_run_that_declares_too_much_for_it(self) -> None:
        members = (Member(cluster="c1", windows=(self.DAY,)), Member(cluster="c2", order=1))
        fit = Policy(fit_in_window=True)
        long, short = a_waiting(1, max_runtime_s=3601), a_waiting(2, max_runtime_s=3600)
        result = plan(long, short, members=members, policy=fit)
        assert {start.run.id: start.cluster for start in result.starts} == {"run_0001": "c2", "run_0002": "c1"}
        assert result.starts[0].decision["candidates"][0]["reason"] == "WINDOW_TOO_SHORT"

    def test_a_tier_that_returns_is_looked_for(self) -> None:
        back = a_cluster("c1", recovered_at=NOW - timedelta(seconds=590))
        result = plan(a_waiting(), members=PAIR, clusters=(back, a_cluster("c2")), load={"c2": FULL})
        assert (result.starts, result.next_look_s) == ((), 10)


class TestChoice:
    def test_runs_spread_by_load_as_they_start(self) -> None:
        one = Demand(resources=Resources(cpu=1))
        result = plan(*(a_waiting(at, demand=one) for at in (1, 2, 3)), policy=Policy(rank=Rank.LEAST_LOADED))
        assert [start.cluster for start in result.starts] == ["c1", "c2", "c1"]
        loads = [[one["load"] for one in start.decision["candidates"]] for start in result.starts]
        assert loads == [[0, 0], [0.25, 0], [0.25, 0.25]]

    def test_what_others_use_past_muster_is_load(self) -> None:
        node = Node(
            id="n1", ip="", group="w1", alive=True, is_head=False,
            total=Resources(cpu=4, memory_gib=8), available=Resources(cpu=4, memory_gib=2),
        )  # fmt: skip
        busy = a_cluster("c1", nodes=(node,))
        result = plan(a_waiting(), clusters=(busy, a_cluster("c2")), policy=Policy(rank=Rank.LEAST_LOADED))
        start = only_start(result)
        assert (start.cluster, start.decision["candidates"][0]["load"]) == ("c2", 0.75)

    def test_equal_runs_are_drawn_one_by_one(self) -> None:
        weighted = Policy(rank=Rank.WEIGHTED)
        result = plan(*map(a_waiting, range(8)), policy=weighted)
        together = {start.run.id: start.cluster for start in result.starts}
        assert set(together.values()) == {"c1", "c2"}
        alone = {f"run_{at:04d}": only_start(plan(a_waiting(at), policy=weighted)).cluster for at in range(3)}
        assert alone.items() <= together.items()

    def test_where_it_was_tried_comes_last(self) -> None:
        tried = a_waiting(tried=frozenset({"c1"}))
        assert only_start(plan(tried)).cluster == "c2"
        assert only_start(plan(tried, clusters=(a_cluster("c1"),))).cluster == "c1"

    def test_clusters_of_packages_it_may_not_use(self) -> None:
        clusters = (a_cluster("c1", resource_package="theirs"), a_cluster("c2", resource_package="ours"))
        start = only_start(plan(a_waiting(demand=Demand(packages=("ours",))), clusters=clusters))
        assert (start.cluster, start.decision["candidates"][0]["reason"]) == ("c2", "ACCESS_DENIED")

    @pytest.mark.parametrize(("held", "cluster"), [(0, "c1"), (4, "c2")])
    def test_the_accelerator_it_would_get_now(self, held: int, cluster: str) -> None:
        """c1 has both types; once its H100s are taken, those of c2 come before its A100s."""
        nodes = tuple(
            Node(id=kind, ip="", group=kind, alive=True, is_head=False, total=Resources(cpu=4, gpu={kind: 4}))
            for kind in ("A100", "H100")
        )
        load = {"c1": Load(held=(Held(run="r", amount=Resources(gpu={"H100": held})),))}
        demand = Demand(resources=Resources(gpu={"H100": 2}), gpu_types=("H100", "A100"))
        result = plan(
            a_waiting(demand=demand),
            policy=Policy(gpu_match=GpuMatch.ORDERED),
            clusters=(a_cluster("c1", nodes=nodes), a_cluster("c2", nodes=nodes[1:])),
            load=load,
        )
        start = only_start(result)
        assert (start.cluster, start.amount.gpu) == (cluster, {"H100": 2})

    def test_clusters_of_any_resource_group(self) -> None:
        """Off-peak: the own one is down, another group's takes the run while it lends itself."""
        night = Member(cluster="c2", order=1, windows=(Window(start="11:00", end="13:00"),))
        clusters = (
            a_cluster("c1", resource_group="mine", health=HealthStatus.UNHEALTHY),
            a_cluster("c2", resource_group="theirs"),
        )
        assert only_start(plan(a_waiting(), members=(Member(cluster="c1"), night), clusters=clusters)).cluster == "c2"
