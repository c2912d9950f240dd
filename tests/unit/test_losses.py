"""A cluster that is lost under a run, and a window that closes over one: who goes on elsewhere, and from when on."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_groups.decide.members import window_ends_at
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.group import Member, OnClusterLoss, OnWindowEnd, Policy, Window, WindowState
from cluster_groups.model.health import HealthStatus
from kernel.reasons import Reason
from rayjobs.decide.admit import plan_admission
from rayjobs.decide.attempt import (
    FORGET_AFTER_S,
    LONGEST_PAUSE_S,
    LOST_NODE_S,
    WATCHED_S,
    Action,
    Change,
    Do,
    Problem,
    Seen,
    decide_attempt,
    pause_s,
)
from rayjobs.decide.attempt_outcome import advance
from rayjobs.decide.pace import AT_ONCE, WITHIN, next_move_at
from rayjobs.decide.successor import AFTER_LEASE, Earlier, free_from, latest
from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.model.job import Retry, RunMode
from rayjobs.model.run import AttemptState, Condition, End, EndClass, EndCode, RunState
from rayjobs.runner.spec import EXIT_LEASE_LOST
from rayjobs.snapshot import AdmissionSnapshot, AttemptView, Load, WaitingRun
from tests.builders.runs import NOW, a_cluster, a_group, a_run, an_attempt

UNREACHABLE = Seen(problem=Problem.UNREACHABLE)
FAIL, REDISPATCH = OnClusterLoss.FAIL, OnClusterLoss.REDISPATCH
TWICE = Retry(max_attempts=2, on=("lost",))
LEASE: dict[str, Any] = {"lease_ttl_s": 600, "lease_until": NOW}
LOST = End(end_class=EndClass.LOST, code=EndCode.CLUSTER_LOST)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def running(**fields: Any) -> AttemptView:
    known = {"run_state": RunState.RUNNING, "started_at": NOW, "retry": TWICE, "run_mode": RunMode.CLUSTER_GROUP}
    return an_attempt(AttemptState.RUNNING, **(known | fields))


def step(view: AttemptView, seen: Seen, after_s: float = 0) -> Change:
    action = decide_attempt(view, later(after_s))
    assert action is not None
    return advance(view, action, seen, later(after_s))


class TestOnClusterLoss:
    @pytest.mark.parametrize(
        ("fields", "state"),
        [
            ({"on_cluster_loss": FAIL, **LEASE}, RunState.FAILED),
            ({"on_cluster_loss": REDISPATCH, **LEASE}, RunState.WAITING),
            ({"on_cluster_loss": REDISPATCH}, RunState.FAILED),
            ({"on_cluster_loss": REDISPATCH, "retry_safe": True}, RunState.WAITING),
            ({"on_cluster_loss": FAIL, "retry_safe": True}, RunState.FAILED),
            ({"on_cluster_loss": REDISPATCH, **LEASE, "tries": 1}, RunState.FAILED),
            ({"on_cluster_loss": REDISPATCH, **LEASE, "retry": Retry(max_attempts=2, on=("user",))}, RunState.FAILED),
            ({"on_cluster_loss": REDISPATCH, **LEASE, "stop_code": EndCode.BY_USER}, RunState.FAILED),
            ({"run_mode": RunMode.CLUSTER}, RunState.WAITING),
            ({"run_mode": RunMode.CLUSTER, "retry": Retry()}, RunState.FAILED),
        ],
    )
    def test_when_it_has_been_away_for_long_enough(self, fields: dict[str, Any], state: RunState) -> None:
        view = running(lost_since=NOW, lost_timeout_s=60, **fields)
        assert step(view, UNREACHABLE, after_s=59).is_nothing
        change = step(view, UNREACHABLE, after_s=60)
        assert change.end is not None
        assert (change.run_state, change.end.code) == (state, EndCode.CLUSTER_LOST)
        assert change.again is None or change.again.not_before is None, "the lease alone says how long to wait"

    @pytest.mark.parametrize(("policy", "state"), [(FAIL, RunState.FAILED), (REDISPATCH, RunState.WAITING)])
    def test_a_confirmed_loss_needs_no_lease(self, policy: OnClusterLoss, state: RunState) -> None:
        fallen = a_cluster(state=ClusterState.FAILED, state_reason=Reason(code="HEAD_LOST"))
        change = step(running(on_cluster_loss=policy, cluster=fallen), Seen(done=True))
        assert change.end is not None
        assert (change.run_state, change.end.code) == (state, EndCode.HEAD_LOST)

    def test_a_task_that_is_lost_is_no_lost_cluster(self) -> None:
        job = RayJob(status=RayStatus.FAILED, error_type="JOB_SUPERVISOR_ACTOR_DIED")
        assert step(running(on_cluster_loss=FAIL), Seen(job=job)).run_state is RunState.WAITING

    def test_a_lease_that_ran_out_is_a_loss_and_without_a_lease_it_is_the_users_own_code(self) -> None:
        job = RayJob(status=RayStatus.FAILED, exit_code=EXIT_LEASE_LOST)
        held = step(running(on_cluster_loss=REDISPATCH, **LEASE), Seen(job=job))
        free = step(running(on_cluster_loss=REDISPATCH), Seen(job=job))
        assert held.end is not None
        assert free.end is not None
        assert (held.end.code, held.run_state) == (EndCode.LEASE_LOST, RunState.WAITING)
        assert (free.end.code, free.run_state) == (EndCode.EXIT_NONZERO, RunState.FAILED)

    def test_nobody_is_given_up_while_nobody_looks(self) -> None:
        unknown = a_cluster(health=HealthStatus.UNKNOWN)
        assert step(running(lost_since=NOW, lost_timeout_s=60, cluster=unknown), UNREACHABLE, after_s=999).is_nothing

    def test_it_is_looked_at_just_when_its_time_is_up(self) -> None:
        view, look = running(lost_since=NOW, lost_timeout_s=600), Action(do=Do.LOOK)
        assert pause_s(view, look, Change(), later(500), 0.5) == LONGEST_PAUSE_S
        assert pause_s(view, look, Change(), later(597), 0.5) == 3
        assert pause_s(view, look, Change(), later(601), 0.5) == LONGEST_PAUSE_S

    def test_a_service_that_was_away_looks_for_a_while_first(self) -> None:
        view = running(lost_since=NOW, lost_timeout_s=600, watched_since=later(5000))
        assert step(view, UNREACHABLE, after_s=5000 + WATCHED_S - 1).is_nothing
        assert step(view, UNREACHABLE, after_s=5000 + WATCHED_S).end is not None


class TestConfirmed:
    def stale(self, **fields: Any) -> AttemptView:
        known = {"run_mode": RunMode.CLUSTER_GROUP, "end": LOST, "run_state": RunState.RUNNING, "lost_since": NOW}
        return an_attempt(AttemptState.RELEASING, **(known | fields))

    def what(self, after_s: float, **fields: Any) -> Do:
        action = decide_attempt(self.stale(**fields), later(after_s))
        assert action is not None
        return action.do

    def test_a_cluster_that_has_only_just_come_back_is_not_believed(self) -> None:
        after_s = LOST_NODE_S + 10
        assert self.what(after_s, cluster=a_cluster(health=HealthStatus.UNHEALTHY)) is Do.WAIT
        assert self.what(after_s) is Do.RELEASE

    def test_a_submission_on_its_way_has_time_to_arrive_whatever_becomes_of_the_run(self) -> None:
        assert self.what(LOST_NODE_S + 9, run_state=RunState.FAILED) is Do.WAIT
        other = End(end_class=EndClass.LOST, code=EndCode.NODE_LOST)
        assert self.what(FORGET_AFTER_S, run_state=RunState.FAILED, end=other) is Do.RELEASE

    def test_it_is_asked_now_and_then(self) -> None:
        view = self.stale(cluster=a_cluster(health=HealthStatus.UNHEALTHY))
        assert pause_s(view, Action(do=Do.WAIT), Change(), later(1), 0.5) == LOST_NODE_S + 10 - 1
        assert pause_s(view, Action(do=Do.WAIT), Change(), later(1000), 0.5) == LONGEST_PAUSE_S


class TestWindowEnd:
    @pytest.mark.parametrize("state", [AttemptState.PENDING, AttemptState.PLACING, AttemptState.RUNNING])
    def test_it_is_stopped_at_that_instant(self, state: AttemptState) -> None:
        view = an_attempt(state, window_ends_at=later(10), run_state=RunState.RUNNING)
        before, then = (decide_attempt(view, later(seconds)) for seconds in (9.9, 10))
        assert before is not None
        assert then is not None
        assert (before.do, then.do) == (Do.LOOK, Do.STOP)
        assert advance(view, then, Seen(), later(10)) == Change(state=AttemptState.STOPPING)

    @pytest.mark.parametrize(
        ("retry", "stop_code", "state", "code"),
        [
            (Retry(), None, RunState.STOPPED, EndCode.WINDOW_ENDED),
            (TWICE, None, RunState.WAITING, EndCode.WINDOW_ENDED),
            (Retry(max_attempts=2, on=("user",)), None, RunState.STOPPED, EndCode.WINDOW_ENDED),
            (TWICE, EndCode.BY_USER, RunState.STOPPED, EndCode.BY_USER),
        ],
    )
    def test_what_becomes_of_the_run(
        self, retry: Retry, stop_code: EndCode | None, state: RunState, code: EndCode
    ) -> None:
        view = an_attempt(
            AttemptState.STOPPING, window_ends_at=NOW, run_state=RunState.RUNNING, retry=retry, stop_code=stop_code
        )
        change = step(view, Seen(job=RayJob(status=RayStatus.STOPPED)), after_s=5)
        assert change.end is not None
        assert (change.run_state, change.end.end_class, change.end.code) == (state, EndClass.STOPPED, code)
        assert change.again is None or (change.again.counts, change.again.not_before) == (True, None)

    @pytest.mark.parametrize(
        ("ended_s", "state", "code"),
        [(3599, RunState.FAILED, EndCode.EXIT_NONZERO), (3601, RunState.STOPPED, EndCode.WINDOW_ENDED)],
    )
    def test_what_had_ended_before_it_was_not_stopped_by_it(
        self, ended_s: float, state: RunState, code: EndCode
    ) -> None:
        view = an_attempt(AttemptState.STOPPING, window_ends_at=later(3600), run_state=RunState.RUNNING)
        job = RayJob(status=RayStatus.FAILED, exit_code=1, ended_at=later(ended_s))
        change = step(view, Seen(job=job), after_s=7200)
        assert change.end is not None
        assert (change.run_state, change.end.code) == (state, code)

    def test_it_is_looked_at_just_then(self) -> None:
        view = an_attempt(started_at=NOW, window_ends_at=later(1000))
        look = Action(do=Do.LOOK)
        assert pause_s(view, look, Change(), later(998.5), 0.5) == 1.5
        assert pause_s(view, look, Change(), later(900), 0.5) == 5.0

    @pytest.mark.parametrize(
        ("on_end", "window", "ends_at"),
        [
            (OnWindowEnd.STOP, WindowState(is_open=True, until=later(60)), later(60)),
            (OnWindowEnd.KEEP, WindowState(is_open=True, until=later(60)), None),
            (OnWindowEnd.STOP, WindowState(is_open=True), None),
            (OnWindowEnd.STOP, WindowState(is_open=False, until=later(60)), None),
        ],
    )
    def test_what_is_kept_with_the_attempt(
        self, on_end: OnWindowEnd, window: WindowState, ends_at: datetime | None
    ) -> None:
        assert window_ends_at(Policy(on_window_end=on_end), window) == ends_at

    def test_by_the_policy_as_it_is_when_it_is_placed(self) -> None:
        members = (Member(cluster="c1", windows=(Window(start="11:00", end="13:00"),)),)
        policy = Policy(on_window_end=OnWindowEnd.STOP, on_cluster_loss=REDISPATCH, lost_timeout_s=700)
        (start,) = plan(in_group(), members=members, policy=policy).starts
        assert (start.policy, start.window_ends_at, start.lost_timeout_s) == (policy, later(3600), 700)


class TestNextAttempt:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"lease_ttl_s": 600, "lease_until": later(100)}, later(190)),
            ({"lease_ttl_s": 600, "lease_until": later(100), "end_code": EndCode.HEAD_LOST}, later(190)),
            ({"lease_ttl_s": 600}, NOW),
            ({}, NOW),
            ({"end_code": EndCode.HEAD_LOST}, None),
            ({"on_cluster_loss": None}, None),
            ({"on_cluster_loss": FAIL}, None),
        ],
    )
    def test_from_when_on(self, fields: dict[str, Any], expected: datetime | None) -> None:
        known: dict[str, Any] = {"since": NOW, "end_code": EndCode.CLUSTER_LOST, "on_cluster_loss": REDISPATCH}
        known |= {"lease_ttl_s": None, "lease_until": None}
        assert free_from(Earlier(**(known | fields))) == expected

    def test_all_earlier_ones_count(self) -> None:
        assert latest([NOW, later(5)]) == later(5)
        assert latest([NOW, None]) is None

    def test_it_waits_until_then_and_is_looked_at_then(self) -> None:
        told = Condition(code="RETRY_BACKOFF", owner="platform", params={"because": "CLUSTER_LOST"}, since=NOW)
        run = in_group(is_releasing=True, free_from=later(40), condition=told)
        early = plan(run)
        (wait,) = early.waits
        assert (wait.reason.code, early.next_look_s) == ("RETRY_BACKOFF", 40)
        assert wait.reason.params == {"because": "CLUSTER_LOST", "not_before": "2026-11-30T12:00:40Z"}
        assert [start.cluster for start in plan(run, now=later(40)).starts] == ["c1"]
        assert plan(in_group(is_releasing=True), now=later(9999)).starts == ()


class TestReturning:
    STALE = Load(stale=2)

    def test_a_member_takes_nothing_before_everything_is_over_there(self) -> None:
        result = plan(in_group(), load={"clu_c1": self.STALE})
        assert [start.cluster for start in result.starts] == ["c2"]
        reasons = {one["cluster"]: one["reason"] for one in result.starts[0].decision["candidates"]}
        assert reasons == {"c1": "STALE_ATTEMPTS", "c2": None}

    def test_nor_does_the_cluster_of_a_job(self) -> None:
        (wait,) = plan(a_run(), load={"clu_c1": self.STALE}).waits
        assert (wait.reason.code, wait.reason.params) == ("STALE_ATTEMPTS", {"cluster": "c1", "attempts": 2})


class TestPace:
    def test_so_many_at_once_then_one_after_the_other(self) -> None:
        runs = [in_group(number, is_evicted=True) for number in range(5)]
        moves = tuple(later(-seconds) for seconds in range(AT_ONCE - 2))
        result = plan(*runs, moves=moves)
        assert [start.run.id for start in result.starts] == ["run_0000", "run_0001"]
        assert {wait.reason.code for wait in result.waits} == {"MOVES_PACED"}
        assert result.next_look_s == (WITHIN - timedelta(seconds=AT_ONCE - 3)).total_seconds()

    def test_others_pass(self) -> None:
        moves = tuple(NOW for _ in range(AT_ONCE))
        result = plan(in_group(1, is_evicted=True), in_group(2), moves=moves)
        assert [start.run.id for start in result.starts] == ["run_0002"]
        (wait,) = result.waits
        assert (wait.reason.code, result.next_look_s) == ("MOVES_PACED", WITHIN.total_seconds())
        assert plan(in_group(1, is_evicted=True), moves=moves, now=NOW + WITHIN).starts

    @given(st.lists(st.floats(0, 30), max_size=60))
    def test_never_more_than_that_and_everybody_goes(self, asks: list[float]) -> None:
        """Each asks at its time and again when it is told to."""
        moves: list[datetime] = []
        waiting = sorted(map(later, asks))
        now = NOW
        while waiting:
            now = max(now, waiting[0])
            until = next_move_at(moves, now)
            assert until is None or now < until <= now + WITHIN
            if until is None:
                moves.append(now)
                waiting.pop(0)
            else:
                now = until
        assert all(after - before >= WITHIN for before, after in zip(moves, moves[AT_ONCE:], strict=False))


@given(
    ttl_s=st.integers(30, 86400), until_s=st.none() | st.integers(0, 86400), code=st.sampled_from(EndCode),
    policy=st.none() | st.sampled_from(OnClusterLoss),
)  # fmt: skip
def test_nothing_starts_before_a_lease_is_over_everywhere(
    ttl_s: int, until_s: int | None, code: EndCode, policy: OnClusterLoss | None
) -> None:
    until = None if until_s is None else later(until_s)
    earlier = Earlier(since=NOW, end_code=code, on_cluster_loss=policy, lease_ttl_s=ttl_s, lease_until=until)
    free = free_from(earlier)
    assert free is not None
    assert until is None or free >= until + AFTER_LEASE


def in_group(number: int = 1, **fields: Any) -> WaitingRun:
    return a_run(number, run_mode=RunMode.CLUSTER_GROUP, state=RunState.WAITING, **fields)


def plan(
    *runs: WaitingRun,
    members: tuple[Member, ...] = (Member(cluster="c1"), Member(cluster="c2", order=1)),
    policy: Policy = Policy(),  # noqa: B008 - frozen
    clusters: tuple[Any, ...] = (a_cluster("c1"), a_cluster("c2")),
    now: datetime = NOW,
    **fields: Any,
) -> Any:
    snapshot = AdmissionSnapshot(
        runs=runs,
        clusters={view.id: view for view in clusters},
        groups={"g1": a_group(members=members, policy=policy)},
        **fields,
    )
    return plan_admission(snapshot, now)
