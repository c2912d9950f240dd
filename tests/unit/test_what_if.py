"""What a policy would do is what admission would: the same plans over the snapshot as supposed."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from cluster_groups.model.demand import Demand
from cluster_groups.model.group import ClusterGroup, Effect, Member, Policy, Window
from kernel.actor import Actor, Role
from kernel.resources import Resources
from rayjobs.explain import WOULD_BE
from rayjobs.model.job import JobSpec, Requirements, RunMode
from rayjobs.model.run import Condition
from rayjobs.snapshot import NO_ROOM_SINCE, AdmissionSnapshot, WaitingRun
from rayjobs.what_if import Fate, Simulation, Supposition, what_if
from tests.builders.runs import NOW, a_cluster, a_group, a_run

LATER = NOW + timedelta(minutes=10)
ANY = Actor(user="ann", role=Role.VIEWER)
LARGE = Demand(resources=Resources(cpu=4))
ON_C1, ON_C2 = Fate(outcome="dispatched", cluster="c1"), Fate(outcome="dispatched", cluster="c2")


def suppose(
    snapshot: AdmissionSnapshot,
    group: ClusterGroup,
    at: datetime = LATER,
    actor: Actor = ANY,
    cpu: float = 0,
    **spec: Any,
) -> Simulation:
    fields = {"run_mode": RunMode.CLUSTER_GROUP, "requirements": Requirements(cpu=cpu), **spec}
    return what_if(snapshot, Supposition(group=group, spec=JobSpec(name="j", **fields), actor=actor, at=at), LATER)


def snapshot_of(*runs: WaitingRun, group: ClusterGroup) -> AdmissionSnapshot:
    views = (a_cluster("c1"), a_cluster("c2"))
    return AdmissionSnapshot(runs=runs, clusters={view.id: view for view in views}, groups={group.name: group})


def in_group(number: int, **fields: Any) -> WaitingRun:
    return a_run(number, run_mode=RunMode.CLUSTER_GROUP, **fields)


class TestTheDecision:
    def test_a_new_run_comes_after_all_that_wait(self) -> None:
        group = a_group("c1", "c2")
        snapshot = snapshot_of(in_group(1, demand=LARGE), group=group)
        assert suppose(snapshot, group, cpu=4).decision["chosen"] == "c2"
        assert suppose(snapshot, group, cpu=4).waiting_runs[0].after == ON_C1

    def test_a_job_that_goes_elsewhere_is_looked_at_as_if_it_did_not(self) -> None:
        group = a_group("c2")
        told = suppose(snapshot_of(group=group), group, run_mode=RunMode.CLUSTER, cluster="c1")
        assert (told.decision["run"], told.decision["chosen"]) == (WOULD_BE, "c2")

    def test_it_goes_only_where_whoever_asks_may_send_it(self) -> None:
        group = a_group("c1")
        snapshot = snapshot_of(group=group)
        theirs = replace(snapshot, clusters={"clu_c1": a_cluster("c1", resource_package="gold")})
        assert suppose(theirs, group).decision["chosen"] == "c1"
        told = suppose(theirs, group, actor=Actor(user="bob", role=Role.VIEWER, resource_packages=("silver",)))
        assert [one["reason"] for one in told.decision["candidates"]] == ["ACCESS_DENIED"]

    def test_windows_are_those_of_the_time_supposed(self) -> None:
        closed = Window(start="12:00", end="13:00", effect=Effect.CLOSED)
        group = a_group(members=(Member(cluster="c1", windows=(closed,)),))
        snapshot = snapshot_of(group=group)
        assert suppose(snapshot, group).decision["outcome"] == "waiting"
        assert suppose(snapshot, group, NOW + timedelta(hours=1)).decision["chosen"] == "c1"


class TestWhatBecomesOfOthers:
    def test_only_runs_of_the_group_are_told_of(self) -> None:
        group = a_group("c1")
        snapshot = snapshot_of(in_group(1), a_run(2), in_group(3, cluster_group="g2"), group=group)
        assert [one.run for one in suppose(snapshot, group).waiting_runs] == ["run_0001"]

    def test_before_is_the_policy_as_it_is(self) -> None:
        group = a_group(members=(Member(cluster="c1", enabled=False),))
        snapshot = snapshot_of(in_group(1), group=group)
        (fate,) = suppose(snapshot, a_group("c2")).waiting_runs
        assert (fate.before, fate.after) == (Fate(outcome="waiting", code="GROUP_NO_HEALTHY_MEMBER"), ON_C2)
        assert snapshot.groups == {"g1": group}

    def test_who_would_have_waited_too_long_by_then(self) -> None:
        group = a_group("c1", policy=Policy(max_wait_s=3600))
        (fate,) = suppose(snapshot_of(in_group(1), group=group), group, NOW + timedelta(hours=2)).waiting_runs
        assert (fate.before, fate.after) == (ON_C1, Fate(outcome="failed", code="MAX_WAIT"))

    def test_a_time_gone_by_knows_of_no_waiting(self) -> None:
        """Else the tier that a run waits for room in would not be open to it yet."""
        group = a_group("c1", "c2")
        waits = Condition(code="X", owner="platform", params={NO_ROOM_SINCE: NOW.isoformat()}, since=NOW)
        snapshot = snapshot_of(in_group(1, condition=waits), group=group)
        assert suppose(snapshot, group, NOW - timedelta(days=365)).waiting_runs[0].after == ON_C1

    def test_nobody_else_changes_places(self) -> None:
        """Those of other groups take part, so that nobody is promised what they would take."""
        group, other = a_group("c1"), a_group("c1", id="grp_2", name="g2")
        first = in_group(1, cluster_group="g2", queue="cluster_group/g2", demand=LARGE)
        snapshot = replace(
            snapshot_of(first, in_group(2, demand=LARGE), group=group), groups={"g1": group, "g2": other}
        )
        (fate,) = suppose(snapshot, group).waiting_runs
        assert (fate.run, fate.after.outcome) == ("run_0002", "waiting")
