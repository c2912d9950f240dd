"""Admission: who starts, who waits for what, who gives up."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cluster_groups.model.cluster import ClusterKind, ClusterState, Node, NodeShape
from cluster_groups.model.demand import Bundles, Demand
from cluster_groups.model.group import Policy
from cluster_groups.model.health import HealthStatus
from cluster_groups.model.quota import QueueSettings
from kernel.reasons import Owner
from kernel.resources import ANY_GPU, Resources
from rayjobs.decide.admit import AdmissionPlan, plan_admission
from rayjobs.decide.order import settings_of_queue
from rayjobs.decide.room import MAX_STARTING, driver_limit
from rayjobs.model.job import RunMode
from rayjobs.model.run import Condition, EndClass, EndCode
from rayjobs.snapshot import AdmissionSnapshot, Held, Load, WaitingRun
from tests.builders.runs import NOW, a_cluster, a_group, a_resource_group, a_run

LATER = NOW + timedelta(minutes=5)


def plan(*runs: WaitingRun, **fields: object) -> AdmissionPlan:
    clusters = fields.pop("clusters", [a_cluster()])
    by_id = {view.id: view for view in clusters}  # type: ignore[attr-defined]  # a list of views in every call here
    snapshot = AdmissionSnapshot(runs=runs, clusters=by_id, **fields)  # type: ignore[arg-type]
    return plan_admission(snapshot, LATER)


def gang(count: int, **size: Any) -> Demand:
    one = Resources(**size)
    return Demand(resources=one * count, bundles=(Bundles(size=one, count=count),))


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
            ({"state": ClusterState.STARTING}, "CLUSTER_NOT_RUNNING", Owner.PLATFORM),
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

    def test_one_that_waits_for_room_is_overtaken_where_others_fit(self) -> None:
        """Until it has waited long enough: tests/unit/test_holds.py."""
        large, small = Demand(resources=Resources(cpu=4)), Demand(resources=Resources(cpu=1))
        load = {"clu_c1": Load(drivers=1, held=(Held(run=None, amount=Resources(cpu=2)),))}
        result = plan(a_run(1, demand=large), a_run(2, demand=small), load=load)
        assert (started(result), waiting(result)) == (["run_0002"], {"run_0001": "QUEUED_BEHIND"})
        assert result.waits[0].reason.params["short"] == {"cpu": {"wanted": 4, "free": 2}}

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

    def test_a_smaller_one_passes_where_it_fits(self) -> None:
        large = a_run(1, run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=8)))
        small = a_run(2, run_mode=RunMode.ON_DEMAND, demand=Demand(resources=Resources(cpu=1)))
        used = {"default": (Held(run=None, amount=Resources(cpu=4)),)}
        result = plan(large, small, resource_groups={"default": a_resource_group()}, quota_held=used)
        assert (started(result), waiting(result)) == (["run_0002"], {"run_0001": "QUOTA_INSUFFICIENT"})

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

    def test_it_waits_as_the_first_member_tells(self) -> None:
        four = Demand(resources=Resources(cpu=4))
        load = {f"clu_{name}": Load(held=(Held(run=None, amount=Resources(cpu=1)),)) for name in ("c1", "c2")}
        run = a_run(run_mode=RunMode.CLUSTER_GROUP, demand=four)
        (wait,) = plan(
            run, clusters=[a_cluster("c1"), a_cluster("c2")], groups={"g1": a_group("c1", "c2")}, load=load
        ).waits
        assert (wait.reason.code, wait.reason.params["cluster"]) == ("QUEUED_BEHIND", "c1")
        assert (wait.decision["run"], wait.decision["outcome"]) == (run.id, "waiting")
        assert [one["fits_now"] for one in wait.decision["candidates"]] == [False, False]


class TestGangs:
    """Nodes of four cores."""

    NODES = tuple(
        Node(id=f"n{at}", ip="", group="w1", alive=True, is_head=False, total=Resources(cpu=4, memory_gib=8))
        for at in range(3)
    )

    def test_it_starts_where_all_its_tasks_fit_with_a_place_for_each(self) -> None:
        (start,) = plan(a_run(demand=gang(3, cpu=2)), clusters=[a_cluster(nodes=self.NODES)]).starts
        assert start.placement == dict.fromkeys(("n0", "n1", "n2"), Resources(cpu=2))
        assert start.amount == Resources(cpu=6)

    def test_a_plain_run_is_placed_nowhere(self) -> None:
        (start,) = plan(a_run(demand=Demand(resources=Resources(cpu=1)))).starts
        assert (start.placement, start.amount) == ({}, Resources(cpu=1))

    def test_it_waits_as_a_whole_where_only_a_part_fits(self) -> None:
        held = Held(run="other", amount=Resources(cpu=3), nodes={"n1": Resources(cpu=3)})
        result = plan(
            a_run(demand=gang(3, cpu=2)),
            clusters=[a_cluster(nodes=self.NODES)],
            load={"clu_c1": Load(drivers=1, held=(held,))},
        )
        (wait,) = result.waits
        assert (wait.reason.code, wait.reason.owner) == ("GANG_PARTIAL", Owner.PLATFORM)
        assert wait.reason.params == {"cluster": "c1", "fitting": 2, "wanted": 3}

    def test_those_of_one_round_do_not_get_the_same_nodes(self) -> None:
        runs = [a_run(number, demand=gang(2, cpu=3)) for number in (1, 2)]
        result = plan(*runs, clusters=[a_cluster(nodes=self.NODES)])
        assert (started(result), waiting(result)) == (["run_0001"], {"run_0002": "GANG_PARTIAL"})

    def test_what_plain_runs_hold_is_not_free_for_gangs(self) -> None:
        load = {"clu_c1": Load(drivers=1, held=(Held(run=None, amount=Resources(cpu=7)),))}
        result = plan(a_run(demand=gang(3, cpu=2)), clusters=[a_cluster(nodes=self.NODES)], load=load)
        assert result.waits[0].reason.params["fitting"] == 2

    def test_what_can_never_be_placed_is_told_so_and_holds_nobody_up(self) -> None:
        result = plan(a_run(1, demand=gang(4, cpu=1)), a_run(2), clusters=[a_cluster(nodes=self.NODES)])
        assert (started(result), waiting(result)) == (["run_0002"], {"run_0001": "GANG_NEVER_FITS"})

    def test_one_at_a_time_on_nodes_that_the_cluster_would_add(self) -> None:
        growing = a_cluster(nodes=self.NODES, growth=(NodeShape(group="w1", size=Resources(cpu=4), count=3),))
        runs = [a_run(number, demand=gang(4, cpu=2)) for number in (1, 2)]
        result = plan(*runs, clusters=[growing])
        assert (started(result), waiting(result)) == (["run_0001"], {"run_0002": "GANG_PARTIAL"})
        placement = result.starts[0].placement
        assert len(placement) == 4
        held = Held(run="run_0001", amount=result.starts[0].amount, nodes=placement)
        later = plan(
            runs[1],
            a_run(3, demand=gang(3, cpu=2)),
            clusters=[growing],
            load={"clu_c1": Load(drivers=1, held=(held,))},
        )
        assert (started(later), waiting(later)) == (["run_0003"], {"run_0002": "GANG_PARTIAL"})

    def test_the_group_takes_the_member_on_whose_nodes_it_fits(self) -> None:
        many = tuple(replace(node, id=f"m{at}") for at, node in enumerate(self.NODES * 2))
        result = plan(
            a_run(run_mode=RunMode.CLUSTER_GROUP, demand=gang(5, cpu=1)),
            clusters=[a_cluster("c1", nodes=self.NODES), a_cluster("c2", nodes=many)],
            groups={"g1": a_group("c1", "c2")},
        )
        assert result.starts[0].cluster == "c2"
        assert result.starts[0].decision["candidates"][0]["reason"] == "GANG_NEVER_FITS"


class TestAccelerators:
    NODES = tuple(
        Node(id=kind, ip="", group="w1", alive=True, is_head=False, total=Resources(cpu=8, memory_gib=8, gpu={kind: 8}))
        for kind in ("A100", "H100")
    )

    def start(self, *held: Held, **demand: Any) -> tuple[dict[str, float], str]:
        result = plan(
            a_run(demand=Demand(**demand)),
            clusters=[a_cluster(nodes=self.NODES)],
            load={"clu_c1": Load(drivers=len(held), held=held)},
        )
        return (dict(result.starts[0].amount.gpu), "") if result.starts else ({}, result.waits[0].reason.code)

    def test_a_run_is_charged_for_the_type_it_gets(self) -> None:
        eight = Resources(gpu={"H100": 8})
        either: dict[str, Any] = {"resources": eight, "gpu_types": ("H100", "A100")}
        assert self.start(**either) == ({"H100": 8}, "")
        assert self.start(Held(run=None, amount=Resources(gpu={"H100": 1})), **either) == ({"A100": 8}, "")
        both = Held(run=None, amount=Resources(gpu={"H100": 1, "A100": 1}))
        assert self.start(both, **either) == ({}, "QUEUED_BEHIND")

    def test_any_type_is_one_that_is_there(self) -> None:
        assert self.start(resources=Resources(gpu={ANY_GPU: 4})) == ({"A100": 4}, "")

    def test_what_is_held_of_no_type_counts_as_of_one_that_is_there(self) -> None:
        held = Held(run=None, amount=Resources(gpu={ANY_GPU: 5}))
        assert self.start(held, resources=Resources(gpu={"H100": 4})) == ({}, "QUEUED_BEHIND")
        assert self.start(held, resources=Resources(gpu={ANY_GPU: 8})) == ({"A100": 8}, "")

    def test_a_gang_is_charged_for_the_types_of_its_nodes(self) -> None:
        (start,) = plan(a_run(demand=gang(2, gpu={ANY_GPU: 4})), clusters=[a_cluster(nodes=self.NODES)]).starts
        assert start.amount.gpu == {"A100": 4, "H100": 4}


class TestStayingBack:
    def test_it_waits_for_its_time_and_stands_in_nobodys_way(self) -> None:
        told = Condition(code="GANG_BACKOFF", owner="platform", params={"because": "GANG_TIMEOUT"}, since=NOW)
        back = a_run(
            1, not_before=LATER + timedelta(seconds=40), condition=told, demand=Demand(resources=Resources(cpu=4))
        )
        result = plan(back, a_run(2, demand=Demand(resources=Resources(cpu=4))))
        assert (started(result), waiting(result)) == (["run_0002"], {"run_0001": "GANG_BACKOFF"})
        assert result.waits[0].reason.params == {"because": "GANG_TIMEOUT"}
        assert result.next_look_s == 40

    def test_or_until_its_last_attempt_is_over(self) -> None:
        result = plan(a_run(is_releasing=True, not_before=NOW))
        assert waiting(result) == {"run_0001": "RETRY_BACKOFF"}

    def test_then_it_has_its_old_place(self) -> None:
        four = Demand(resources=Resources(cpu=4))
        assert started(plan(a_run(2, demand=four), a_run(1, demand=four, not_before=LATER))) == ["run_0001"]

    def test_the_longest_wait_ends_it_all_the_same(self) -> None:
        back = a_run(not_before=LATER + timedelta(hours=1), max_wait_s=60)
        assert [one.run.id for one in plan(back).give_ups] == ["run_0001"]

    def test_the_longest_wait_counts_from_when_it_waits(self) -> None:
        assert plan(a_run(waiting_since=LATER, max_wait_s=60)).give_ups == ()


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

    def test_age_lifts_a_run_up_to_the_highest_priority(self) -> None:
        queue = QueueSettings(aging_s=60)
        eight = Demand(resources=Resources(cpu=8))
        runs = [
            a_run(number, run_mode=RunMode.ON_DEMAND, priority=priority, demand=eight, enqueued_at=LATER - age)
            for number, priority, age in (
                (1, 9, timedelta(0)),
                (2, 7, timedelta(seconds=119)),
                (3, 1, timedelta(hours=1)),
                (4, 5, timedelta(seconds=241)),
            )
        ]
        ordered = ["run_0003", "run_0004", "run_0001", "run_0002"]
        for expected in ordered:
            group = a_resource_group(queue=queue)
            assert started(plan(*runs, resource_groups={"default": group})) == [expected]
            runs = [run for run in runs if run.id != expected]

    def test_a_queue_takes_the_settings_of_its_resource_group(self) -> None:
        """A cluster's, and a cluster group's if all its members are in the same; else those of `default`."""
        groups = {
            name: a_resource_group(name=name, queue=QueueSettings(aging_s=aging_s))
            for name, aging_s in (("default", 60), ("vision", 70))
        }
        clusters = [a_cluster("c1", resource_group="vision"), a_cluster("c2", resource_group="vision"), a_cluster("c3")]
        snapshot = AdmissionSnapshot(
            runs=(),
            clusters={view.id: view for view in clusters},
            groups={"g1": a_group("c1", "c2"), "g2": a_group("c1", "c3")},
            resource_groups=groups,
        )
        in_group = {"run_mode": RunMode.CLUSTER_GROUP}
        for run, aging_s in (
            (a_run(), 70),
            (a_run(cluster_id="clu_c3"), 60),
            (a_run(**in_group), 70),
            (a_run(**in_group, cluster_group="g2"), 60),
            (a_run(run_mode=RunMode.ON_DEMAND, resource_group="vision"), 70),
        ):
            assert settings_of_queue(run, snapshot).aging_s == aging_s
        assert settings_of_queue(a_run(), replace(snapshot, resource_groups={})) == QueueSettings()

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
