"""The life of an attempt: what is done in each state, and what follows from what was seen."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cluster_groups.model.cluster import ClusterKind, ClusterState
from kernel.reasons import Reason
from rayjobs.decide.attempt import (
    COLLECT_PATIENCE_S,
    FORGET_AFTER_S,
    LATE_POST_S,
    LOST_NODE_S,
    Action,
    Change,
    Do,
    Problem,
    Seen,
    decide_attempt,
    pause_s,
)
from rayjobs.decide.attempt_outcome import advance
from rayjobs.gateway.base import RayJob, RayStatus
from rayjobs.model.job import RunMode
from rayjobs.model.run import ATTEMPT_TRANSITIONS, AttemptState, End, EndClass, EndCode, RunState
from rayjobs.snapshot import AttemptView
from tests.builders.runs import NOW, a_cluster, an_attempt

FALLEN = a_cluster(state=ClusterState.FAILED, state_reason=Reason(code="HEAD_LOST"))
UNREACHABLE = Seen(problem=Problem.UNREACHABLE)


def step(view: AttemptView, seen: Seen | None = None, after_s: float = 0) -> Change:
    now = NOW + timedelta(seconds=after_s)
    action = decide_attempt(view, now)
    assert action is not None
    change = advance(view, action, seen or Seen(done=True), now)
    if change.state is not None:
        assert change.state in ATTEMPT_TRANSITIONS[view.state]
    return change


def what(view: AttemptView, after_s: float = 0) -> Do | None:
    action = decide_attempt(view, NOW + timedelta(seconds=after_s))
    return action.do if action else None


class TestItsOwnCluster:
    def view(self, **fields: object) -> AttemptView:
        fields.setdefault("cluster", a_cluster(state=ClusterState.STARTING))
        return an_attempt(AttemptState.CLUSTER, run_mode=RunMode.ON_DEMAND, **fields)

    def test_nothing_to_do_while_it_starts(self) -> None:
        assert what(self.view()) is None

    def test_goes_on_once_it_runs(self) -> None:
        assert step(self.view(cluster=a_cluster())).state is AttemptState.POSTING

    def test_a_cluster_that_cannot_start_ends_the_run_with_its_reason(self) -> None:
        broken = a_cluster(state=ClusterState.FAILED, state_reason=Reason(code="PORT_IN_USE"))
        change = step(self.view(cluster=broken))
        assert (change.state, change.run_state) == (AttemptState.RELEASING, RunState.FAILED)
        assert change.end is not None
        assert (change.end.code, change.end.params["reason"]) == (EndCode.CLUSTER_START_FAILED, "PORT_IN_USE")

    def test_start_timeout(self) -> None:
        view = self.view(start_timeout_s=60)
        assert what(view, 59) is None
        change = step(view, after_s=60)
        assert change.end is not None
        assert (change.end.end_class, change.end.code) == (EndClass.PLACEMENT, EndCode.START_TIMEOUT)

    def test_a_stop_does_not_wait_for_the_cluster(self) -> None:
        change = step(self.view(stop_code=EndCode.BY_USER))
        assert (change.state, change.run_state) == (AttemptState.RELEASING, RunState.STOPPED)

    def test_it_is_deleted_and_the_attempt_ends_only_when_it_is_gone(self) -> None:
        view = an_attempt(AttemptState.RELEASING, run_mode=RunMode.ON_DEMAND)
        assert step(view, Seen(done=False)) == Change(delete_cluster=True)
        deleting = an_attempt(
            AttemptState.RELEASING, run_mode=RunMode.ON_DEMAND, cluster=a_cluster(state=ClusterState.DELETING)
        )
        assert step(deleting, Seen(done=False)).is_nothing
        gone = an_attempt(AttemptState.RELEASING, run_mode=RunMode.ON_DEMAND, cluster=None)
        assert step(gone).state is AttemptState.ENDED

    def test_a_fallen_one_is_deleted_too(self) -> None:
        view = an_attempt(AttemptState.RELEASING, run_mode=RunMode.ON_DEMAND, cluster=FALLEN)
        assert step(view, Seen(done=False)).delete_cluster


class TestPosting:
    def test_accepted(self) -> None:
        assert step(an_attempt(AttemptState.POSTING)).state is AttemptState.PENDING

    def test_every_try_is_noted(self) -> None:
        assert step(an_attempt(AttemptState.POSTING)).posted
        assert step(an_attempt(AttemptState.POSTING, lost_since=NOW), UNREACHABLE).posted

    def test_a_server_error_is_no_refusal_until_it_lasts(self) -> None:
        error = Seen(problem=Problem.REFUSED, status=500, text="ValueError: bad runtime_env")
        assert step(an_attempt(AttemptState.POSTING), error).end is None
        late = step(an_attempt(AttemptState.POSTING, lost_since=NOW), error, after_s=LATE_POST_S + 1)
        assert late.end is not None
        assert (late.end.end_class, late.end.code) == (EndClass.PLATFORM, EndCode.SUBMIT_REFUSED)

    def test_an_ill_head_is_waited_for_like_a_silent_one(self) -> None:
        error, lost = Seen(problem=Problem.REFUSED, status=500, text="agent died"), {"lost_timeout_s": 900}
        assert step(an_attempt(AttemptState.POSTING, lost_since=NOW, **lost), error, after_s=899).end is None
        late = step(an_attempt(AttemptState.POSTING, lost_since=NOW, **lost), error, after_s=900)
        assert late.end is not None
        assert late.end.code is EndCode.CLUSTER_LOST

    def test_unknown_outcome_is_asked_again_at_the_same_cluster(self) -> None:
        change = step(an_attempt(AttemptState.POSTING), UNREACHABLE)
        assert change == Change(lost_since=NOW, posted=True)
        again = an_attempt(AttemptState.POSTING, lost_since=NOW)
        assert what(again) is Do.POST

    def test_nothing_is_sent_beside_what_was_given_up_there(self) -> None:
        held_up = an_attempt(AttemptState.POSTING, lost_since=NOW, is_held_up=True)
        assert what(held_up) is Do.LOOK
        assert step(held_up, Seen(), after_s=5000).is_nothing
        arrived = step(held_up, Seen(job=RayJob(status=RayStatus.PENDING)))
        assert (arrived.state, arrived.found_again) == (AttemptState.PENDING, True)

    def test_refused_is_the_users(self) -> None:
        change = step(
            an_attempt(AttemptState.POSTING), Seen(problem=Problem.REFUSED, status=400, text="bad runtime_env")
        )
        assert change.end is not None
        assert (change.end.code, change.run_state) == (EndCode.SUBMIT_REFUSED, RunState.FAILED)

    def test_what_cannot_be_put_to_the_cluster_ends_as_is_told(self) -> None:
        end = End(end_class=EndClass.PLATFORM, code=EndCode.PACKAGE_MISSING, params={"package": "pkg_1"})
        change = step(an_attempt(AttemptState.POSTING), Seen(problem=Problem.IMPOSSIBLE, end=end))
        assert (change.end, change.state) == (end, AttemptState.RELEASING)

    def test_a_stop_asks_before_it_believes_that_nothing_was_sent(self) -> None:
        view = an_attempt(AttemptState.POSTING, stop_code=EndCode.BY_USER, run_state=RunState.STOPPING)
        assert what(view) is Do.LOOK
        assert step(view, Seen(job=None), after_s=LATE_POST_S - 1).is_nothing
        change = step(view, Seen(job=None), after_s=LATE_POST_S)
        assert (change.state, change.run_state) == (AttemptState.RELEASING, RunState.STOPPED)
        assert step(view, Seen(job=RayJob(status=RayStatus.PENDING))).state is AttemptState.PENDING


class TestOnRay:
    def test_pending_to_running(self) -> None:
        job = RayJob(status=RayStatus.RUNNING, driver_address="http://127.0.0.1:1")
        change = step(an_attempt(AttemptState.PENDING), Seen(job=job))
        assert (change.state, change.run_state) == (AttemptState.RUNNING, RunState.RUNNING)
        assert change.driver_address == "http://127.0.0.1:1"

    def test_nothing_new_changes_nothing(self) -> None:
        job = RayJob(status=RayStatus.RUNNING)
        assert step(an_attempt(AttemptState.RUNNING), Seen(job=job)).is_nothing

    @pytest.mark.parametrize(
        ("job", "state", "end_class", "code"),
        [
            (RayJob(status=RayStatus.SUCCEEDED, exit_code=0), RunState.SUCCEEDED, "completed", "ALL_TASKS_DONE"),
            (RayJob(status=RayStatus.FAILED, exit_code=3), RunState.FAILED, "user", "EXIT_NONZERO"),
            (RayJob(status=RayStatus.FAILED, exit_code=137), RunState.FAILED, "user", "SIGNAL"),
            (RayJob(status=RayStatus.FAILED, exit_code=-9), RunState.FAILED, "user", "SIGNAL"),
            (RayJob(status=RayStatus.FAILED, exit_code=230), RunState.FAILED, "user", "EXIT_NONZERO"),
            (RayJob(status=RayStatus.FAILED, exit_code=231), RunState.FAILED, "platform", "RUNNER_FAILED"),
            (
                RayJob(status=RayStatus.FAILED, error_type="RUNTIME_ENV_SETUP_FAILURE", message="no such package"),
                RunState.FAILED, "environment", "RUNTIME_ENV_FAILED",
            ),
            (
                RayJob(status=RayStatus.FAILED, error_type="JOB_SUPERVISOR_ACTOR_START_TIMEOUT"),
                RunState.FAILED, "placement", "DRIVER_NOT_STARTED",
            ),
            (
                RayJob(status=RayStatus.FAILED, error_type="JOB_SUPERVISOR_ACTOR_DIED"),
                RunState.FAILED, "lost", "DRIVER_LOST",
            ),
            (RayJob(status=RayStatus.STOPPED), RunState.STOPPED, "stopped", "STOPPED_OUTSIDE"),
        ],
    )  # fmt: skip
    def test_verdicts(self, job: RayJob, state: RunState, end_class: str, code: str) -> None:
        change = step(an_attempt(AttemptState.RUNNING, run_state=RunState.RUNNING), Seen(job=job))
        assert change.state is AttemptState.COLLECTING
        assert change.end is not None
        assert (change.run_state, change.end.end_class, change.end.code) == (state, end_class, code)

    def test_the_runners_code_for_time_is_up_counts_only_when_it_is(self) -> None:
        job = RayJob(status=RayStatus.FAILED, exit_code=230)
        view = an_attempt(AttemptState.RUNNING, run_state=RunState.RUNNING, max_runtime_s=60)
        early, late = step(view, Seen(job=job), after_s=30), step(view, Seen(job=job), after_s=61)
        assert early.end is not None
        assert late.end is not None
        assert (early.end.code, late.end.code) == (EndCode.EXIT_NONZERO, EndCode.MAX_RUNTIME)

    @pytest.mark.parametrize(
        ("head_says_s", "believed_s"),
        [(40, 40), (None, None), (-500, 0), (5000, 3600)],
        ids=["meanwhile", "unknown", "its clock is behind", "its clock is ahead"],
    )
    def test_it_ended_when_the_head_says_not_when_somebody_looked(
        self, head_says_s: int | None, believed_s: int | None
    ) -> None:
        ended_at = None if head_says_s is None else NOW + timedelta(seconds=head_says_s)
        job = RayJob(status=RayStatus.SUCCEEDED, exit_code=0, ended_at=ended_at)
        change = step(an_attempt(AttemptState.RUNNING, started_at=NOW), Seen(job=job), after_s=3600)
        assert change.ended_at == (None if believed_s is None else NOW + timedelta(seconds=believed_s))

    def test_a_head_that_forgot_the_job_was_restarted(self) -> None:
        change = step(an_attempt(AttemptState.RUNNING), Seen(job=None))
        assert change.end is not None
        assert change.end.code is EndCode.HEAD_LOST

    def test_a_fallen_cluster_is_believed_at_once(self) -> None:
        change = step(an_attempt(AttemptState.RUNNING, cluster=FALLEN))
        assert change.end is not None
        assert (change.end.end_class, change.end.code) == (EndClass.LOST, EndCode.HEAD_LOST)

    def test_an_unreachable_one_is_waited_for(self) -> None:
        view = an_attempt(AttemptState.RUNNING)
        assert step(view, UNREACHABLE).lost_since == NOW
        lost = an_attempt(AttemptState.RUNNING, lost_since=NOW, lost_timeout_s=60)
        assert step(lost, UNREACHABLE, after_s=59).is_nothing
        change = step(lost, UNREACHABLE, after_s=60)
        assert change.end is not None
        assert change.end.code is EndCode.CLUSTER_LOST
        assert step(lost, Seen(job=RayJob(status=RayStatus.RUNNING))).found_again


class TestStopping:
    def test_the_stop_is_sent_once_and_then_watched(self) -> None:
        view = an_attempt(AttemptState.RUNNING, stop_code=EndCode.BY_USER, run_state=RunState.STOPPING)
        assert what(view) is Do.STOP
        assert step(view).state is AttemptState.STOPPING
        stopping = an_attempt(AttemptState.STOPPING, stop_code=EndCode.BY_USER, run_state=RunState.STOPPING)
        assert what(stopping) is Do.LOOK
        change = step(stopping, Seen(job=RayJob(status=RayStatus.STOPPED)))
        assert change.end is not None
        assert (change.run_state, change.end.code) == (RunState.STOPPED, EndCode.BY_USER)

    def test_what_finished_before_the_stop_arrived_has_succeeded(self) -> None:
        view = an_attempt(AttemptState.STOPPING, stop_code=EndCode.BY_USER, run_state=RunState.STOPPING)
        assert step(view, Seen(job=RayJob(status=RayStatus.SUCCEEDED, exit_code=0))).run_state is RunState.SUCCEEDED

    def test_an_own_cluster_is_taken_away_when_ray_does_not_stop(self) -> None:
        view = an_attempt(
            AttemptState.STOPPING, stop_code=EndCode.BY_USER, run_state=RunState.STOPPING, run_mode=RunMode.ON_DEMAND
        )
        change = step(view, after_s=60)
        assert change.end is not None
        assert (change.state, change.end.code) == (AttemptState.COLLECTING, EndCode.BY_USER)

    def test_a_shared_cluster_is_asked_again(self) -> None:
        view = an_attempt(AttemptState.STOPPING, stop_code=EndCode.BY_USER, run_state=RunState.STOPPING)
        assert (what(view, 29), what(view, 31)) == (Do.LOOK, Do.STOP)
        stopped = Seen(job=RayJob(status=RayStatus.STOPPED))
        assert step(view, stopped, after_s=31).run_state is RunState.STOPPED


class TestStoppingWhatIsSilent:
    """What goes with its cluster, or is nobody's any more, is not waited for until it counts as lost."""

    def given_up(self, **fields: object) -> tuple[Change, Change]:
        view = an_attempt(AttemptState.RUNNING, lost_since=NOW, lost_timeout_s=900, stop_grace_s=10, **fields)
        return step(view, UNREACHABLE, after_s=29), step(view, UNREACHABLE, after_s=30)

    def test_of_a_run_with_a_cluster_of_its_own(self) -> None:
        early, late = self.given_up(run_mode=RunMode.ON_DEMAND, stop_code=EndCode.BY_USER)
        assert early.is_nothing
        assert (late.state, late.run_state) == (AttemptState.COLLECTING, RunState.STOPPED)
        assert late.end == End(end_class=EndClass.STOPPED, code=EndCode.BY_USER)

    def test_of_an_attached_cluster_that_is_forgotten_by_force(self) -> None:
        forgotten = a_cluster(kind=ClusterKind.ATTACHED, state=ClusterState.DELETING)
        early, late = self.given_up(cluster=forgotten, stop_code=EndCode.FORCED)
        assert early.is_nothing
        assert late.end == End(end_class=EndClass.STOPPED, code=EndCode.FORCED)

    def test_others_may_still_be_running(self) -> None:
        early, late = self.given_up(stop_code=EndCode.BY_USER)
        assert early.is_nothing
        assert late.is_nothing

    def test_a_managed_cluster_that_is_taken_away_will_be_gone(self) -> None:
        assert self.given_up(cluster=a_cluster(state=ClusterState.DELETING), stop_code=EndCode.FORCED)[1].is_nothing


class TestCollectingAndReleasing:
    def test_the_log_is_read_to_its_end_before_anything_is_given_up(self) -> None:
        view = an_attempt(AttemptState.COLLECTING)
        assert step(view, Seen(done=False)).is_nothing
        assert step(view, Seen(done=True)).state is AttemptState.RELEASING

    def test_a_log_that_cannot_be_reached_is_closed_with_a_note(self) -> None:
        view = an_attempt(AttemptState.COLLECTING)
        assert step(view, UNREACHABLE).is_nothing
        change = step(view, UNREACHABLE, after_s=COLLECT_PATIENCE_S + 1)
        assert (change.state, change.close_log) == (AttemptState.RELEASING, "CLUSTER_GONE")

    def test_a_lost_attempt_is_not_forgotten_before_its_cluster_has_answered(self) -> None:
        view = an_attempt(AttemptState.RELEASING)
        assert step(view, UNREACHABLE, after_s=FORGET_AFTER_S).is_nothing
        assert step(view, Seen(done=True), after_s=FORGET_AFTER_S).state is AttemptState.ENDED

    def test_before_another_try_what_fell_with_its_cluster_must_have_ended(self) -> None:
        lost = End(end_class=EndClass.LOST, code=EndCode.HEAD_LOST)
        view = an_attempt(AttemptState.RELEASING, cluster=FALLEN, end=lost, run_state=RunState.WAITING, stop_grace_s=10)
        assert what(view, after_s=LOST_NODE_S + 9) is Do.WAIT
        assert step(view, after_s=LOST_NODE_S + 10).state is AttemptState.ENDED

    def test_one_that_falls_only_later_is_waited_for_from_then_on(self) -> None:
        lost = End(end_class=EndClass.LOST, code=EndCode.CLUSTER_LOST)
        fallen = replace(FALLEN, state_since=NOW + timedelta(seconds=60))
        view = an_attempt(AttemptState.RELEASING, cluster=fallen, end=lost, run_state=RunState.FAILED, stop_grace_s=10)
        assert what(view, after_s=60 + LOST_NODE_S + 9) is Do.WAIT
        assert step(view, after_s=60 + LOST_NODE_S + 10).state is AttemptState.ENDED

    def test_of_a_cluster_that_was_taken_down_nothing_is_left(self) -> None:
        for state in (ClusterState.STOPPED, ClusterState.FAILED):
            down = an_attempt(AttemptState.RELEASING, cluster=a_cluster(state=state, is_absent=True))
            assert step(down).state is AttemptState.ENDED

    def test_ray_forgets_it_only_when_it_will_not_write_it_anew_also_after_a_restart(self) -> None:
        view = an_attempt(AttemptState.RELEASING)
        assert what(view, after_s=1) is Do.WAIT
        assert step(view, Seen(done=True), after_s=1).is_nothing
        assert pause_s(view, Action(do=Do.WAIT), Change(), NOW + timedelta(seconds=1), 0.5) == FORGET_AFTER_S - 1
        assert what(view, after_s=FORGET_AFTER_S) is Do.RELEASE

    def test_an_ended_one_needs_nothing(self) -> None:
        assert decide_attempt(an_attempt(AttemptState.ENDED), NOW) is None


class TestPace:
    def test_a_young_job_is_looked_at_often_and_an_old_one_seldom(self) -> None:
        look = Action(do=Do.LOOK)
        young = pause_s(an_attempt(AttemptState.RUNNING), look, Change(), NOW + timedelta(seconds=1), 0.5)
        old = pause_s(an_attempt(AttemptState.RUNNING), look, Change(), NOW + timedelta(hours=1), 0.5)
        assert young is not None
        assert young < 0.2
        assert old == 5.0

    def test_after_a_change_the_next_step_follows_at_once(self) -> None:
        assert pause_s(an_attempt(), Action(do=Do.LOOK), Change(state=AttemptState.COLLECTING), NOW, 0.5) == 0.0

    def test_a_driver_is_looked_for_when_such_have_started_lately(self) -> None:
        assert (
            pause_s(an_attempt(), Action(do=Do.POST), Change(state=AttemptState.PENDING, posted=True), NOW, 0.7) == 0.7
        )

    def test_before_a_job_is_forgotten_there_is_nothing_to_look_for(self) -> None:
        view, released = an_attempt(AttemptState.COLLECTING), Change(state=AttemptState.RELEASING)
        assert pause_s(view, Action(do=Do.COLLECT), released, NOW, 0.5) == FORGET_AFTER_S
        own = replace(view, run_mode=RunMode.ON_DEMAND)
        assert pause_s(own, Action(do=Do.COLLECT), released, NOW, 0.5) == 0.0
