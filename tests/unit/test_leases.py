"""Which attempts have a lease, and which may renew it."""

from dataclasses import replace
from typing import Any

import pytest

from cluster_groups.model.group import OnClusterLoss, Policy
from rayjobs.decide.lease import RENEWABLE, lease_ttl_of, may_renew
from rayjobs.dispatch import EXIT_LEASE_LOST
from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.gateway.status import GangSight, judge_end
from rayjobs.leases import Callback
from rayjobs.model.job import JobSpec, Retry, RunMode, TaskGroup
from rayjobs.model.run import AttemptState, End, EndClass, EndCode
from rayjobs.runner.spec import unpack
from rayjobs.snapshot import AttemptSnapshot
from rayjobs.submission import Packages, prepare
from tests.builders.runs import an_attempt

MOVES = Policy(on_cluster_loss=OnClusterLoss.REDISPATCH)
WITH_LEASE: dict[str, Any] = {
    "run_mode": RunMode.CLUSTER_GROUP,
    "policy": MOVES,
    "retry": Retry(max_attempts=2, on=("lost",)),
    "tries": 0,
    "can_call_back": True,
    "ttl_s": 600,
}
GOES_ON: dict[str, Any] = {
    "state": AttemptState.RUNNING,
    "epoch": 2,
    "latest_epoch": 2,
    "is_stopping": False,
    "has_grace": False,
}
CALLBACK = Callback(url="http://muster:8266", key=b"key")
ENDED_BY_LEASE = RayJob(status=RayStatus.FAILED, exit_code=EXIT_LEASE_LOST)


class TestWho:
    def test_has_one(self) -> None:
        assert lease_ttl_of(**WITH_LEASE) == 600

    @pytest.mark.parametrize(
        "but",
        [
            {"run_mode": RunMode.CLUSTER},
            {"run_mode": RunMode.ON_DEMAND},
            {"policy": None},
            {"policy": replace(MOVES, on_cluster_loss=OnClusterLoss.FAIL)},
            {"retry": Retry(max_attempts=2, on=("platform",))},
            {"retry": Retry(max_attempts=1, on=("lost",))},
            {"tries": 1},
            {"can_call_back": False},
            {"ttl_s": None},
        ],
        ids=str,
    )
    def test_has_none(self, but: dict[str, Any]) -> None:
        assert lease_ttl_of(**WITH_LEASE | but) is None

    def test_may_renew(self) -> None:
        assert {state for state in AttemptState if may_renew(**GOES_ON | {"state": state})} == RENEWABLE
        assert {AttemptState.COLLECTING, AttemptState.RELEASING, AttemptState.ENDED}.isdisjoint(RENEWABLE)

    @pytest.mark.parametrize("but", [{"is_stopping": True, "has_grace": True}, {"has_grace": True}], ids=str)
    def test_may_renew_until_it_has_stopped(self, but: dict[str, Any]) -> None:
        assert may_renew(**GOES_ON | but)

    @pytest.mark.parametrize("but", [{"latest_epoch": 3}, {"is_stopping": True}], ids=str)
    def test_may_not_renew(self, but: dict[str, Any]) -> None:
        assert not may_renew(**GOES_ON | but)


class TestEnd:
    @pytest.mark.parametrize("gang", [None, GangSight(verdict=None, was_placed=False)])
    def test_by_a_lease_is_a_loss(self, gang: GangSight | None) -> None:
        end = judge_end(ENDED_BY_LEASE, stop_code=None, time_is_up=False, gang=gang, has_lease=True)
        assert end == End(end_class=EndClass.LOST, code=EndCode.LEASE_LOST, exit_code=EXIT_LEASE_LOST)

    def test_of_a_gang_is_as_its_runner_says(self) -> None:
        said = End(end_class=EndClass.LOST, code=EndCode.LEASE_LOST, exit_code=EXIT_LEASE_LOST)
        gang = GangSight(verdict=said, was_placed=True)
        assert judge_end(ENDED_BY_LEASE, stop_code=None, time_is_up=False, gang=gang, has_lease=True) is said

    def test_with_the_same_number_but_no_lease_is_the_programs(self) -> None:
        end = judge_end(ENDED_BY_LEASE, stop_code=None, time_is_up=False)
        assert end is not None
        assert end.code is EndCode.EXIT_NONZERO

    def test_that_was_asked_for_is_a_stop(self) -> None:
        end = judge_end(ENDED_BY_LEASE, stop_code=EndCode.BY_USER, time_is_up=False, has_lease=True)
        assert end is not None
        assert end.end_class is EndClass.STOPPED


class TestSubmission:
    @pytest.mark.parametrize("ttl_s", [None, 600])
    async def test_carries_the_terms_of_a_lease_alone(self, ttl_s: int | None) -> None:
        spec = JobSpec(name="j", run_mode=RunMode.CLUSTER_GROUP, task_groups=(TaskGroup(count=1, entrypoint="true"),))
        view = an_attempt(AttemptState.POSTING, lease_ttl_s=ttl_s)
        snapshot = AttemptSnapshot(view=view, spec=spec, owner="ann")
        packages = Packages(own=None, ray_uploads=None, volumes=None, callback=CALLBACK)  # type: ignore[arg-type]  # none is asked for
        submission, _ = await prepare(snapshot, packages)
        packed = submission.entrypoint.rpartition(" ")[2]
        assert unpack(packed).lease == (CALLBACK.terms(view.id) if ttl_s else None)


class TestClaim:
    callback = CALLBACK

    def test_is_the_same_each_time(self) -> None:
        terms = self.callback.terms("run_1-a1")
        assert terms == self.callback.terms("run_1-a1")
        assert terms.url == "http://muster:8266/runner/v1/attempts/run_1-a1/lease"
        assert self.callback.honours(terms.claim, "run_1-a1")

    @pytest.mark.parametrize("claim", ["", "0" * 32, "é"])
    def test_cannot_be_made_up(self, claim: str) -> None:
        assert not self.callback.honours(claim, "run_1-a1")

    def test_is_of_one_attempt_and_one_installation(self) -> None:
        claim = self.callback.terms("run_1-a1").claim
        assert not self.callback.honours(claim, "run_1-a2")
        assert not Callback(url=self.callback.url, key=b"other").honours(claim, "run_1-a1")
