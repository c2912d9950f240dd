"""Admission: who starts, who waits for what, who gives up."""

from datetime import timedelta

import pytest

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node
from cluster_groups.model.demand import Demand
from cluster_groups.model.group import Policy
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Owner
from kernel.resources import Resources
from rayjobs.decide.admit import MAX_STARTING, AdmissionPlan, driver_limit, plan_admission
from rayjobs.model.job import RunMode
from rayjobs.model.run import EndClass, EndCode
from rayjobs.snapshot import AdmissionSnapshot, Held, Load, WaitingRun
from tests.builders.runs import NOW, a_cluster, a_group, a_resource_group, a_run

LATER = NOW + timedelta(minutes=5)


def plan(*runs: WaitingRun, **fields: object) -> AdmissionPlan:
    clusters = fields.pop("clusters", [a_cluster()])
    by_id = {view.id: view for view in clusters}  # type: ignore[attr-defined]  # a list of views in every call here
    snapshot = AdmissionSnapshot(runs=runs, clusters=by_id, **fields)  # type: ignore[arg-type]
    return plan_admission(snapshot, LATER)


def started(result: AdmissionPlan) -> list[str]:
    return [start.run.id for start in result.starts]


def waiting(result: AdmissionPlan) -> dict[str, str]:
    return {wait.run.id: wait.reason.code for wait in result.waits}


class TestOnACluster:
    def test_an_idle_healthy_cluster_takes_the_run(self) -> None:
        (start,) = plan(a_run()).starts
        assert (start.cluster_id, start.cluster) == ("clu_c1", "c1")
        assert start.decision["outcome"] == "dispatched"

    @pytest.mark.parametrize(
        ("cluster", "code", "owner"),
        [
            ({"state": ClusterState.STOPPED}, "CLUSTER_NOT_RUNNING", Owner.USER),
            ({"state": ClusterState.STARTING}, "CLUSTER_NOT_RUNNING", Owner.USER),
            ({"health": HealthStatus.UNHEALTHY}, "CLUSTER_UNHEALTHY", Owner.PLATFORM),
            ({"health": HealthStatus.UNKNOWN}, "CLUSTER_UNHEALTHY", Owner.PLATFORM),
            ({"health": HealthStatus.PENDING}, "CLUSTER_UNHEALTHY", Owner.PLATFORM),
            ({"cordoned": True}, "CLUSTER_CORDONED", Owner.USER),
        ],
    )
    def test_it_waits_for_a_cluster_that_takes_no_work(
        self, cluster: dict[str, object], code: str, owner: Owner
    ) -> None:
        (wait,) = plan(a_run(), clusters=[a_cluster(**cluster)]).waits
        assert (wait.reason.code, wait.reason.owner) == (code, owner)

    @pytest.mark.parametrize("clusters", [[], [a_cluster(state=ClusterState.DELETING)]])
    def test_a_deleted_cluster_fails_it(self, clusters: list[object]) -> None:
        (give_up,) = plan(a_run(), clusters=clusters).give_ups
        assert (give_up.end.end_class, give_up.end.code) == (EndClass.LOST, EndCode.CLUSTER_DELETED)

    def test_the_head_bears_only_so_many_drivers(self) -> None:
        limit = driver_limit(a_cluster())
        result = plan(a_run(), load={"clu_c1": Load(drivers=limit)})
        assert waiting(result) == {"run_0001": "HEAD_BUSY"}

    def test_an_attached_head_bears_what_somebody_says(self) -> None:
        assert driver_limit(a_cluster(kind=ClusterKind.ATTACHED)) == 10
        assert driver_limit(a_cluster(kind=ClusterKind.ATTACHED, max_runs=200)) == 200

    def test_only_a_few_drivers_start_at_once(self) -> None:
        result = plan(*(a_run(number) for number in range(1, 8)))
        assert len(result.starts) == MAX_STARTING
        assert waiting(result)["run_0005"] == "HEAD_BUSY"

    def test_max_runs_lowers_the_limit_of_the_head(self) -> None:
        result = plan(a_run(1), a_run(2), clusters=[a_cluster(max_runs=1)])
        assert (started(result), waiting(result)) == (["run_0001"], {"run_0002": "HEAD_BUSY"})

    def test_declared_requirements_are_charged(self) -> None:
        two_cpus = Demand(resources=Resources(cpu=2))
        result = plan(*(a_run(number, demand=two_cpus) for number in (1, 2, 3)))
        assert (started(result), waiting(result)) == (["run_0001", "run_0002"], {"run_0003": "QUEUED_BEHIND"})

    def test_nobody_overtakes_one_that_waits_for_room(self) -> None:
        large, small = Demand(resources=Resources(cpu=4)), Demand(resources=Resources(cpu=1))
        load = {"clu_c1": Load(drivers=1, held=(Held(run=None, amount=Resources(cpu=2)),))}
        result = plan(a_run(1, demand=large), a_run(2, demand=small), load=load)
        assert waiting(result) == {"run_0001": "QUEUED_BEHIND", "run_0002": "QUEUED_BEHIND"}
        assert result.waits[1].reason.params["run"] == "run_0001"

    def test_what_others_use_past_muster_is_not_free(self) -> None:
        node = Node(
            id="n1", ip="127.0.0.2", group="w1", alive=True, is_head=False,
            total=Resources(cpu=4, memory_gib=8), available=Resources(cpu=1, memory_gib=8),
        )  # fmt: skip
        two_cpus = Demand(resources=Resources(cpu=2))
        result = plan(a_run(demand=two_cpus), a_run(2), clusters=[a_cluster(nodes=(node,))])
        assert waiting(result)["run_0001"] == "QUEUED_BEHIND"

    def test_what_is_larger_than_the_cluster_blocks_nobody(self) -> None:
        huge = Demand(resources=Resources(cpu=99))
        result = plan(a_run(1, demand=huge), a_run(2))
        assert (started(result), waiting(result)) == (["run_0002"], {"run_0001": "NEVER_FITS"})


class TestOnDemand:
    def test_it_starts_within_the_quota(self) -> None:
        run = a_run(run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=4, memory_gib=8)))
        (start,) = plan(run, resource_groups={"default": a_resource_group()}).starts
        assert start.cluster_id is None

    def test_used_quota_counts_and_so_do_starts_of_the_same_round(self) -> None:
        demand = Demand(resources=Resources(cpu=3, memory_gib=8))
        runs = [a_run(number, run_mode=RunMode.ON_DEMAND, demand=demand) for number in (1, 2, 3)]
        used = {"default": (Held(run=None, amount=Resources(cpu=2)),)}
        result = plan(*runs, resource_groups={"default": a_resource_group()}, quota_held=used)
        assert started(result) == ["run_0001", "run_0002"]
        (wait,) = result.waits
        assert (wait.reason.code, wait.reason.owner) == ("QUOTA_INSUFFICIENT", Owner.QUOTA)
        assert wait.reason.params["short"] == {"cpu": {"needed": 3, "used": 8, "max": 8}}

    def test_a_smaller_one_does_not_overtake(self) -> None:
        large = a_run(1, run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=8)))
        small = a_run(2, run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=1)))
        used = {"default": (Held(run=None, amount=Resources(cpu=4)),)}
        result = plan(large, small, resource_groups={"default": a_resource_group()}, quota_held=used)
        assert waiting(result) == {"run_0001": "QUOTA_INSUFFICIENT", "run_0002": "QUEUED_BEHIND"}

    def test_what_can_never_fit_holds_nobody_up(self) -> None:
        huge = a_run(1, run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=16)))
        small = a_run(2, run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=1)))
        result = plan(huge, small, resource_groups={"default": a_resource_group()})
        assert (started(result), waiting(result)) == (["run_0002"], {"run_0001": "QUOTA_INSUFFICIENT"})

    def test_a_deleted_resource_group_fails_it(self) -> None:
        (give_up,) = plan(a_run(run_mode=RunMode.ON_DEMAND)).give_ups
        assert give_up.end.code is EndCode.TARGET_DELETED


class TestInAGroup:
    def test_the_first_member_in_order_that_has_room_gets_it(self) -> None:
        clusters = [a_cluster("c1"), a_cluster("c2")]
        load = {"clu_c1": Load(drivers=99)}
        result = plan(
            a_run(run_mode=RunMode.CLUSTER_GROUP), clusters=clusters, groups={"g1": a_group("c1", "c2")}, load=load
        )
        assert result.starts[0].cluster == "c2"
        candidates = {one["cluster"]: one for one in result.starts[0].decision["candidates"]}
        assert candidates["c1"]["facts"]["lacks"] == "HEAD_BUSY"

    def test_an_unhealthy_primary_is_passed_over(self) -> None:
        clusters = [a_cluster("c1", health=HealthStatus.UNHEALTHY), a_cluster("c2")]
        result = plan(a_run(run_mode=RunMode.CLUSTER_GROUP), clusters=clusters, groups={"g1": a_group("c1", "c2")})
        assert result.starts[0].cluster == "c2"
        assert result.starts[0].decision["candidates"][0]["reason"] == "HEALTH_UNHEALTHY"

    def test_an_empty_group(self) -> None:
        result = plan(a_run(run_mode=RunMode.CLUSTER_GROUP), groups={"g1": a_group()})
        assert waiting(result) == {"run_0001": "GROUP_EMPTY"}

    def test_room_kept_for_a_group_run_is_not_given_to_a_later_one(self) -> None:
        two = Demand(resources=Resources(cpu=4))
        load = {"clu_c1": Load(drivers=1, held=(Held(run=None, amount=Resources(cpu=1)),))}
        first = a_run(1, run_mode=RunMode.CLUSTER_GROUP, demand=two)
        result = plan(first, a_run(2), groups={"g1": a_group("c1")}, load=load)
        assert waiting(result) == {"run_0001": "QUEUED_BEHIND", "run_0002": "QUEUED_BEHIND"}


class TestOrderAndTime:
    def test_higher_priority_first_then_age(self) -> None:
        runs = [
            a_run(1, run_mode=RunMode.ON_DEMAND, priority=1),
            a_run(2, run_mode=RunMode.ON_DEMAND, priority=9),
            a_run(3, run_mode=RunMode.ON_DEMAND, priority=9),
            a_run(4, run_mode=RunMode.ON_DEMAND, priority=None),
        ]
        result = plan(*runs, resource_groups={"default": a_resource_group()})
        assert started(result) == ["run_0002", "run_0003", "run_0004", "run_0001"]

    def test_the_longest_wait_ends_a_run_with_what_it_waited_for(self) -> None:
        run = a_run(max_wait_s=60)
        (give_up,) = plan(run, clusters=[a_cluster(state=ClusterState.STOPPED)]).give_ups
        assert (give_up.end.end_class, give_up.end.code) == (EndClass.TIMEOUT, EndCode.MAX_WAIT)

    def test_a_group_may_bound_the_wait_of_runs_that_do_not(self) -> None:
        group = a_group("c1", policy=Policy(max_wait_s=60))
        stopped = [a_cluster(state=ClusterState.STOPPED)]
        runs = [
            a_run(number, run_mode=RunMode.CLUSTER_GROUP, max_wait_s=limit) for number, limit in ((1, None), (2, 999))
        ]
        result = plan(*runs, clusters=stopped, groups={"g1": group})
        assert [one.run.id for one in result.give_ups] == ["run_0001"]
        assert result.give_ups[0].end.params["max_wait_s"] == 60

    def test_the_lost_timeout_of_the_policy_goes_with_the_start(self) -> None:
        group = a_group("c1", policy=Policy(lost_timeout_s=30))
        (start,) = plan(a_run(run_mode=RunMode.CLUSTER_GROUP), groups={"g1": group}).starts
        assert start.lost_timeout_s == 30

    def test_the_plan_says_when_time_alone_changes_it(self) -> None:
        run = a_run(max_wait_s=3600)
        result = plan(run, clusters=[a_cluster(state=ClusterState.STOPPED)])
        assert result.next_look_s == (run.enqueued_at + timedelta(seconds=3600) - LATER).total_seconds()

    def test_input_order_does_not_matter(self) -> None:
        runs = [a_run(number, demand=Demand(resources=Resources(cpu=1))) for number in range(1, 9)]
        assert plan(*runs) == plan(*reversed(runs))
