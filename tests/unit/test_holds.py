"""Capacity held for the run that has waited long enough, and who may pass it all the same (requirements §2.4)."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from cluster_groups.model.cluster import Node
from cluster_groups.model.demand import Bundles, ClusterView, Demand
from cluster_groups.model.group import Member
from cluster_groups.model.quota import QueueSettings
from kernel.resources import Resources
from rayjobs.decide.admit import AdmissionPlan, Wait, plan_admission
from rayjobs.model.job import RunMode
from rayjobs.model.run import Condition
from rayjobs.snapshot import HELD_ON, AdmissionSnapshot, Held, Load, WaitingRun
from tests.builders.queue_world import order_queue
from tests.builders.runs import NOW, a_cluster, a_group, a_resource_group, a_run

LATE = NOW + timedelta(minutes=20)
"""When whoever came at noon has waited for longer than the default of 900 s."""
LARGE, SMALL, NEW = 1, 2, 3


def in_s(seconds: float) -> datetime:
    return LATE + timedelta(seconds=seconds)


def held(cpu: float, ends_s: float | None = None, **fields: Any) -> Held:
    ends_by = None if ends_s is None else in_s(ends_s)
    return Held(run=f"run_{cpu}", amount=Resources(cpu=cpu), ends_by=ends_by, **fields)


def plan(*runs: WaitingRun, **fields: Any) -> AdmissionPlan:
    """A quota of 8 cores in `default`, of which `used` is taken."""
    clusters = {view.id: view for view in fields.pop("clusters", [])}
    group = a_resource_group(queue=fields.pop("queue", QueueSettings()), quota=fields.pop("quota", Resources(cpu=8)))
    used = fields.pop("used", ())
    snapshot = AdmissionSnapshot(
        runs=runs, clusters=clusters, resource_groups={"default": group}, quota_held={"default": used}, **fields
    )
    return plan_admission(snapshot, LATE)


def wants(number: int, cpu: float, **fields: Any) -> WaitingRun:
    return a_run(number, **{"run_mode": RunMode.ON_DEMAND, "demand": Demand(resources=Resources(cpu=cpu)), **fields})


def started(result: AdmissionPlan) -> list[str]:
    return [start.run.id for start in result.starts]


def wait_of(result: AdmissionPlan, number: int) -> Wait:
    (found,) = [wait for wait in result.waits if wait.run.id == f"run_{number:04d}"]
    return found


def held_for(result: AdmissionPlan) -> dict[str, tuple[str, datetime | None]]:
    """By run: what is held, and until when."""
    return {
        wait.run.id: (wait.reason.params[HELD_ON], wait.predicted_start)
        for wait in result.waits
        if HELD_ON in wait.reason.params
    }


class TestOfAQuota:
    def test_it_is_held_until_those_who_have_it_must_have_ended(self) -> None:
        result = plan(wants(LARGE, 8), wants(SMALL, 1), used=(held(3, 600), held(1, 300)))
        assert started(result) == []
        assert held_for(result) == {"run_0001": ("default", in_s(600))}
        assert wait_of(result, LARGE).reason.code == "QUOTA_INSUFFICIENT"
        behind = wait_of(result, SMALL).reason
        assert (behind.code, behind.params) == ("QUEUED_BEHIND", {"resource_group": "default", "run": "run_0001"})

    @pytest.mark.parametrize(("limit_s", "passes"), [(580, True), (581, False), (None, False)])
    def test_who_gives_back_in_time_may_pass(self, limit_s: int | None, passes: bool) -> None:
        result = plan(wants(LARGE, 8), wants(SMALL, 4, max_runtime_s=limit_s), used=(held(4, 600),))
        assert started(result) == (["run_0002"] if passes else [])

    def test_the_time_its_own_cluster_takes_to_come_up_counts(self) -> None:
        small = wants(SMALL, 1, max_runtime_s=500, start_timeout_s=81)
        assert started(plan(wants(LARGE, 8), small, used=(held(4, 600),))) == []

    def test_what_lies_beyond_its_need_is_anybodys_until_it_is_gone(self) -> None:
        result = plan(wants(LARGE, 6), wants(SMALL, 2), wants(NEW, 1), used=(held(4, 600),))
        assert started(result) == ["run_0002"]
        assert wait_of(result, NEW).reason.params["run"] == "run_0001"

    def test_a_shorter_limit_passes_where_a_longer_one_of_the_same_size_does_not(self) -> None:
        limits = {2: None, 3: 700, 4: 580, 5: 900, 6: 60}
        small = [wants(number, 1, max_runtime_s=limit) for number, limit in limits.items()]
        result = plan(wants(LARGE, 8), *small, used=(held(4, 600),))
        assert started(result) == ["run_0004", "run_0006"]
        assert [wait.run.id for wait in result.waits] == ["run_0001", "run_0002", "run_0003", "run_0005"]

    def test_who_starts_now_counts_among_those_it_waits_for(self) -> None:
        first = wants(0, 4, max_runtime_s=100)
        assert held_for(plan(first, wants(LARGE, 8), used=(held(4, 50),))) == {"run_0001": ("default", in_s(120))}

    def test_who_should_have_ended_is_awaited_now(self) -> None:
        assert held_for(plan(wants(LARGE, 8), used=(held(4, -60),))) == {"run_0001": ("default", LATE)}

    def test_nobody_is_held_for_that_can_never_fit(self) -> None:
        result = plan(wants(LARGE, 9), wants(SMALL, 1), used=(held(4, 600),))
        assert (started(result), held_for(result)) == (["run_0002"], {})

    def test_nor_who_stays_back(self) -> None:
        back = wants(LARGE, 8, not_before=in_s(60))
        result = plan(back, wants(SMALL, 8), wants(NEW, 1), used=(held(4, 600),))
        assert (started(result), held_for(result)) == ([], {"run_0002": ("default", in_s(600))})


class TestWhenNobodyKnows:
    """One of those it waits for has declared no limit."""

    def test_there_is_no_projected_start_and_no_passing_by_time(self) -> None:
        result = plan(wants(LARGE, 8), wants(SMALL, 1, max_runtime_s=1), used=(held(3, 600), held(1)))
        assert (started(result), held_for(result)) == ([], {"run_0001": ("default", None)})

    def test_it_need_not_wait_for_that_one(self) -> None:
        result = plan(wants(LARGE, 7), used=(held(3, 600), held(1)))
        assert held_for(result) == {"run_0001": ("default", in_s(600))}

    def test_what_is_beyond_its_need_already_now_stays_so(self) -> None:
        """It lacks accelerators; of the cores there are enough for others."""
        quota = Resources(cpu=8, gpu={"H100": 8})
        cards = Held(run="run_x", amount=Resources(cpu=1, gpu={"H100": 8}))
        large = wants(LARGE, 4, demand=Demand(resources=Resources(cpu=4, gpu={"H100": 8})))
        result = plan(large, wants(SMALL, 3), wants(NEW, 1), quota=quota, used=(cards,))
        assert started(result) == ["run_0002"]


class TestWhen:
    def test_not_before_it_has_waited_and_the_plan_says_when(self) -> None:
        young = wants(LARGE, 8, enqueued_at=LATE - timedelta(seconds=890))
        result = plan(young, wants(SMALL, 1, enqueued_at=LATE), used=(held(4, 600),))
        assert (started(result), held_for(result), result.next_look_s) == (["run_0002"], {}, 10)

    def test_at_once_where_the_queue_is_strict(self) -> None:
        queue = QueueSettings(reserve_after_s=0)
        result = plan(
            wants(LARGE, 8, enqueued_at=LATE), wants(SMALL, 1, enqueued_at=LATE), queue=queue, used=(held(4),)
        )
        assert (started(result), held_for(result)) == ([], {"run_0001": ("default", None)})

    def test_never_where_it_only_does_its_best(self) -> None:
        queue = QueueSettings(reserve_after_s=None)
        result = plan(wants(LARGE, 8), wants(SMALL, 1), queue=queue, used=(held(4, 600),))
        assert (started(result), held_for(result)) == (["run_0002"], {})

    def test_for_the_first_in_order_of_those_who_waited_and_for_one_of_a_queue(self) -> None:
        """A young one of higher priority goes first and is not held for yet; of the others one is."""
        young = wants(NEW, 8, enqueued_at=LATE, priority=9)
        result = plan(young, wants(LARGE, 8), wants(SMALL, 7), used=(held(4, 600),))
        assert held_for(result) == {"run_0001": ("default", in_s(600))}

    def test_once_held_for_it_stays_so_until_it_starts(self) -> None:
        told = Condition(code="QUOTA_INSUFFICIENT", owner="quota", params={HELD_ON: "default"}, since=NOW)
        large, new = wants(LARGE, 8, priority=1, condition=told), wants(NEW, 1, priority=9, enqueued_at=LATE)
        older = wants(0, 8, priority=9)
        result = plan(older, large, new, used=(held(4, 600),))
        assert (started(result), held_for(result)) == ([], {"run_0001": ("default", in_s(600))})
        assert started(plan(older, large, new)) == ["run_0001"]
        assert order_queue([older, new, large], QueueSettings(), LATE) == [large, older, new]

    def test_unless_the_queue_holds_for_nobody_any_more(self) -> None:
        told = Condition(code="QUOTA_INSUFFICIENT", owner="quota", params={HELD_ON: "default"}, since=NOW)
        queue = QueueSettings(reserve_after_s=None)
        large, new = wants(LARGE, 8, condition=told), wants(NEW, 1, priority=9)
        assert started(plan(large, new, queue=queue, used=(held(4, 600),))) == ["run_0003"]


def gang(count: int, cpu: float) -> Demand:
    size = Resources(cpu=cpu)
    return Demand(resources=size * count, bundles=(Bundles(size=size, count=count),))


def on_cluster(number: int, demand: Demand, **fields: Any) -> WaitingRun:
    return a_run(number, **{"demand": demand, **fields})


def a_cluster_of(*cpus: float, name: str = "c1", **fields: Any) -> ClusterView:
    nodes = tuple(
        Node(id=f"{name}-{at}", ip="", group="w1", alive=True, is_head=False, total=Resources(cpu=cpu))
        for at, cpu in enumerate(cpus)
    )
    return a_cluster(name, nodes=nodes, **fields)


def on(nodes: dict[str, float], ends_s: float | None = None) -> Held:
    """A gang with so many cores on these nodes."""
    placed = {node: Resources(cpu=cpu) for node, cpu in nodes.items()}
    return replace(held(sum(nodes.values()), ends_s), nodes=placed)


def load(*holders: Held, **fields: Any) -> dict[str, Load]:
    return {"clu_c1": Load(**{"drivers": len(holders), "held": holders, **fields})}


class TestOfACluster:
    PLAIN = Demand(resources=Resources(cpu=1))

    def test_a_gang_is_projected_onto_the_nodes_that_come_free(self) -> None:
        view = a_cluster_of(4, 4, 4)
        holders = (on({"c1-0": 2}, 100), on({"c1-1": 4}, 300), on({"c1-2": 1}, 200))
        result = plan(on_cluster(LARGE, gang(3, 3)), clusters=[view], load=load(*holders))
        assert held_for(result) == {"run_0001": ("c1", in_s(300))}
        assert wait_of(result, LARGE).reason.params["fitting"] == 1

    def test_others_have_the_nodes_it_will_not_need(self) -> None:
        """It gets the two large nodes; there is room in all for both others, but not on nodes it leaves."""
        view = a_cluster_of(4, 4, 2, 2)
        large = on_cluster(LARGE, gang(2, 3))
        result = plan(
            large,
            on_cluster(2, gang(1, 3)),
            on_cluster(3, gang(2, 2)),
            clusters=[view],
            load=load(on({"c1-0": 2}, 100)),
        )
        assert started(result) == ["run_0003"]
        assert wait_of(result, 2).reason.params["run"] == "run_0001"

    def test_what_one_took_beyond_it_the_next_does_not_get(self) -> None:
        """Two of the six cores of the large node will be left, and the second run finds one of its own elsewhere."""
        runs = (on_cluster(LARGE, gang(1, 4)), on_cluster(2, gang(1, 2)), on_cluster(3, gang(1, 1)))
        result = plan(*runs, clusters=[a_cluster_of(6, 1)], load=load(on({"c1-0": 3}, 100)))
        assert [(start.run.id, *start.placement) for start in result.starts] == [
            ("run_0002", "c1-0"),
            ("run_0003", "c1-1"),
        ]

    @pytest.mark.parametrize(("slots", "passes"), [(2, False), (3, True)])
    def test_a_driver_slot_is_held_with_the_rest(self, slots: int, passes: bool) -> None:
        view = a_cluster_of(4, 4, max_runs=slots)
        runs = (on_cluster(LARGE, gang(2, 4)), on_cluster(SMALL, Demand()))
        result = plan(*runs, clusters=[view], load=load(on({"c1-0": 4})))
        assert started(result) == (["run_0002"] if passes else [])

    def test_nobody_knows_when_then_every_node_that_could_be_its_own_is_kept(self) -> None:
        view = a_cluster_of(8, 8, 4, 2)
        holders = (on({"c1-0": 4}), on({"c1-1": 3}))
        result = plan(
            on_cluster(LARGE, gang(2, 5)),
            on_cluster(2, gang(2, 3)),
            on_cluster(3, gang(2, 2)),
            clusters=[view],
            load=load(*holders),
        )
        assert held_for(result) == {"run_0001": ("c1", None)}
        assert [(start.run.id, sorted(start.placement)) for start in result.starts] == [("run_0003", ["c1-2", "c1-3"])]

    def test_a_plain_run_is_held_for_too(self) -> None:
        view = a_cluster_of(4, 4)
        large = on_cluster(LARGE, Demand(resources=Resources(cpu=8)))
        small = on_cluster(SMALL, self.PLAIN, max_runtime_s=80)
        holders = (held(4, 100),)
        assert started(plan(large, small, clusters=[view], load=load(*holders))) == ["run_0002"]
        longer = replace(small, max_runtime_s=81)
        assert started(plan(large, longer, clusters=[view], load=load(*holders))) == []

    def test_a_cluster_that_takes_no_work_is_held_for_nobody(self) -> None:
        result = plan(on_cluster(LARGE, gang(2, 3)), clusters=[a_cluster_of(4, 4, cordoned=True)])
        assert held_for(result) == {}


class TestInAGroup:
    def plan(self, *runs: WaitingRun, first: Held, second: Held, **fields: Any) -> AdmissionPlan:
        loads = {"clu_c1": Load(drivers=1, held=(first,)), "clu_c2": Load(drivers=1, held=(second,))}
        clusters = [a_cluster_of(4, 4), a_cluster_of(4, 4, name="c2")]
        return plan(*runs, **{"clusters": clusters, "groups": {"g1": a_group("c1", "c2")}, "load": loads, **fields})

    def large(self, **fields: Any) -> WaitingRun:
        return a_run(LARGE, run_mode=RunMode.CLUSTER_GROUP, demand=gang(2, 4), **fields)

    def test_the_member_that_is_projected_first_is_held(self) -> None:
        one = Demand(resources=Resources(cpu=1))
        result = self.plan(
            self.large(),
            on_cluster(SMALL, one),
            a_run(NEW, cluster="c2", cluster_id="clu_c2", queue="cluster/c2", demand=one),
            first=on({"c1-0": 1}, 300),
            second=on({"c2-1": 1}, 100),
        )
        assert held_for(result) == {"run_0001": ("c2", in_s(100))}
        assert started(result) == ["run_0002"]  # on the other member nothing is held

    def test_the_first_where_nobody_knows(self) -> None:
        result = self.plan(self.large(), first=on({"c1-0": 1}), second=on({"c2-1": 1}))
        assert held_for(result) == {"run_0001": ("c1", None)}

    def test_it_moves_only_to_an_earlier_start(self) -> None:
        told = Condition(code="GANG_PARTIAL", owner="platform", params={HELD_ON: "c1"}, since=NOW)
        run = self.large(condition=told)
        same = self.plan(run, first=on({"c1-0": 1}, 100), second=on({"c2-1": 1}, 100))
        assert held_for(same) == {"run_0001": ("c1", in_s(100))}
        earlier = self.plan(run, first=on({"c1-0": 1}, 100), second=on({"c2-1": 1}, 99))
        assert held_for(earlier) == {"run_0001": ("c2", in_s(99))}

    def test_a_member_that_was_taken_out_is_held_no_more(self) -> None:
        told = Condition(code="GANG_PARTIAL", owner="platform", params={HELD_ON: "c1"}, since=NOW)
        members = (Member(cluster="c1", cordoned=True), Member(cluster="c2"))
        result = self.plan(
            self.large(condition=told),
            on_cluster(SMALL, Demand(resources=Resources(cpu=4))),
            first=on({"c1-0": 1}, 100),
            second=on({"c2-1": 1}, 300),
            groups={"g1": a_group(members=members)},
        )
        assert started(result) == ["run_0002"]
        assert held_for(result) == {"run_0001": ("c2", in_s(300))}

    def test_two_queues_do_not_take_each_others(self) -> None:
        """Both were held for: the group's could start now where the other's is held, and does not."""
        told = Condition(code="GANG_PARTIAL", owner="platform", params={HELD_ON: "c2"}, since=NOW)
        mine = a_run(2, run_mode=RunMode.CLUSTER_GROUP, demand=gang(1, 4), condition=told, enqueued_at=NOW)
        other = replace(told, params={HELD_ON: "c1"})
        result = self.plan(
            mine,
            on_cluster(LARGE, gang(2, 4), condition=other),
            first=on({"c1-0": 1}, 300),
            second=on({"c2-0": 1, "c2-1": 1}, 100),
        )
        assert started(result) == []
        assert held_for(result) == {"run_0001": ("c1", in_s(300)), "run_0002": ("c2", in_s(100))}
