"""When a job of tasks is over, and how: requirements 2.1, R28-R32, A2-A9, row by row."""

from typing import Any

import pytest

from rayjobs.model.run import EndClass, EndCode
from rayjobs.runner.completion import Completion, TaskEnd
from rayjobs.runner.spec import EXIT_TASK_LOST, GroupSpec
from rayjobs.runner.verdict import (
    Verdict,
    gang_timeout,
    max_runtime,
    node_lost,
    runner_failed,
    runtime_env_failed,
    stopped,
)


def a_group(tasks: int, name: str = "g", **thresholds: int | None) -> GroupSpec:
    return GroupSpec(name=name, tasks=tasks, cpu=1, memory_bytes=1, gpu=0, gpu_type=None, command="", **thresholds)


def ok(task: int, group: int = 0) -> TaskEnd:
    return TaskEnd(group, task, 0)


def failed(task: int, group: int = 0, code: int = 1, number: int | None = None) -> TaskEnd:
    return TaskEnd(group, task, code, number)


def lost(task: int, group: int = 0) -> TaskEnd:
    return TaskEnd(group, task, None)


ALL_DONE = Verdict("completed", "ALL_TASKS_DONE", 0)


def exited(task: int, code: int = 1, group: int = 0) -> Verdict:
    return Verdict("user", "EXIT_NONZERO", code, group, task, {"exit_code": code})


def enough(task: int, succeeded: int, group: int = 0, name: str = "g") -> Verdict:
    return Verdict("completed", "MIN_SUCCEEDED", 0, group, task, {"task_group": name, "succeeded": succeeded})


def too_many(task: int, min_failed: int, code: int = 1) -> Verdict:
    params = {"task_group": "g", "failed": min_failed, "min_failed": min_failed}
    return Verdict("user", "MIN_FAILED", code, 0, task, params)


def verdicts(groups: list[GroupSpec], batches: list[list[TaskEnd]]) -> list[Verdict | None]:
    completion = Completion(groups)
    return [completion.take(batch) for batch in batches]


MASTER = a_group(1, "master", min_succeeded=1, min_failed=1)
WORKERS = a_group(2, "workers", min_succeeded=-1, min_failed=-1)

ROWS: dict[str, tuple[list[GroupSpec], list[list[TaskEnd]], list[Verdict | None]]] = {
    "blank waits for all (R29)": ([a_group(2)], [[ok(1)], [ok(0)]], [None, ALL_DONE]),
    "blank waits for all groups (A3)": (
        [a_group(1, "a"), a_group(1, "b")],
        [[ok(0)], [ok(0, group=1)]],
        [None, ALL_DONE],
    ),
    "one failure ends all (R30, A2)": ([a_group(3)], [[ok(0)], [failed(2, code=7)]], [None, exited(2, 7)]),
    "of any group": ([a_group(2, "a"), a_group(2, "b")], [[failed(1, group=1)]], [exited(1, group=1)]),
    "threshold = count lets the others go on (R31)": (
        [a_group(3, min_failed=3)],
        [[failed(0)], [failed(1)], [ok(2)]],
        [None, None, ALL_DONE],
    ),
    "threshold = count, all failed": (
        [a_group(2, min_failed=2)],
        [[failed(0)], [failed(1, code=9)]],
        [None, too_many(1, 2, code=9)],
    ),
    "threshold above one": ([a_group(4, min_failed=2)], [[failed(0)], [failed(3)]], [None, too_many(3, 2)]),
    "thresholds count by group": (
        [a_group(2, "a", min_failed=2), a_group(2, "b", min_failed=2)],
        [[failed(0)], [failed(0, group=1)], [ok(1)], [ok(1, group=1)]],
        [None, None, None, ALL_DONE],
    ),
    "-1 switches failing off (A6)": (
        [a_group(2, min_failed=-1)],
        [[failed(0)], [failed(1)]],
        [None, ALL_DONE],
    ),
    "enough successes (R28)": ([a_group(3, min_succeeded=2)], [[ok(2)], [ok(0)]], [None, enough(0, 2)]),
    "failures are no successes (A4)": (
        [a_group(2, min_succeeded=1, min_failed=2)],
        [[failed(0)], [ok(1)]],
        [None, enough(1, 1)],
    ),
    "-1 switches succeeding off": ([a_group(2, min_succeeded=-1)], [[ok(0)], [ok(1)]], [None, ALL_DONE]),
    "the master decides: success": (
        [MASTER, WORKERS],
        [[failed(0, group=1)], [ok(0)]],
        [None, enough(0, 1, name="master")],
    ),
    "the master decides: failure": ([MASTER, WORKERS], [[ok(0, group=1)], [failed(0)]], [None, exited(0)]),
    "both at once: failure (A7)": ([a_group(3, min_succeeded=1)], [[ok(0), failed(1)]], [exited(1)]),
    "in order: success (A7)": ([a_group(3, min_succeeded=1)], [[ok(0)], [failed(1)]], [enough(0, 1), enough(0, 1)]),
    "all done and too many failed at once": ([a_group(2)], [[ok(0), failed(1)]], [exited(1)]),
    "one task in all: thresholds are ignored (R32, A5)": (
        [a_group(1, min_succeeded=1, min_failed=-1)],
        [[failed(0)]],
        [exited(0)],
    ),
    "one task in all succeeds": ([a_group(1, min_succeeded=1)], [[ok(0)]], [ALL_DONE]),
    "one task in its group, not in all": ([MASTER, WORKERS], [[ok(0)]], [enough(0, 1, name="master")]),
    "a loss is a failure": ([a_group(2)], [[lost(1)]], [node_lost(0, 1)]),
    "a loss below the threshold": ([a_group(2, min_failed=2)], [[lost(1)], [ok(0)]], [None, ALL_DONE]),
    "a loss is the last of several failures": (
        [a_group(3, min_failed=2)],
        [[failed(1)], [lost(0)]],
        [None, node_lost(0, 0)],
    ),
    "a loss explains the failures beside it": ([a_group(3)], [[failed(0), lost(2)]], [node_lost(0, 2)]),
    "a signal": (
        [a_group(2)],
        [[failed(0, code=137, number=9)]],
        [Verdict("user", "SIGNAL", 137, 0, 0, {"signal": "SIGKILL"})],
    ),
    "a signal that a shell tells of": (
        [a_group(2)],
        [[failed(0, code=139)]],
        [Verdict("user", "SIGNAL", 139, 0, 0, {"signal": "SIGSEGV"})],
    ),
    "a code beyond all signals": ([a_group(2)], [[failed(0, code=255)]], [exited(0, 255)]),
}


@pytest.mark.parametrize(("groups", "batches", "expected"), ROWS.values(), ids=ROWS)
def test_completion(groups: list[GroupSpec], batches: list[list[TaskEnd]], expected: list[Verdict | None]) -> None:
    assert verdicts(groups, batches) == expected


class TestALossFoundWhileTheOthersAreStopped:
    @pytest.mark.parametrize(
        ("groups", "batches", "then", "expected"),
        [
            ([a_group(3)], [[failed(0)]], lost(2), node_lost(0, 2)),
            ([a_group(3, min_failed=2)], [[failed(0)], [failed(1)]], lost(2), node_lost(0, 2)),
            ([a_group(2), WORKERS], [[failed(0)]], lost(1, group=1), exited(0)),
            ([a_group(2, min_succeeded=1)], [[ok(0)]], lost(1), enough(0, 1)),
            ([a_group(3)], [[lost(0)]], lost(1), node_lost(0, 0)),
        ],
        ids=["was the cause", "was one of the causes", "of a group that may lose some", "of no failure", "second loss"],
    )
    def test_decides_if_it_had_before(
        self, groups: list[GroupSpec], batches: list[list[TaskEnd]], then: TaskEnd, expected: Verdict
    ) -> None:
        completion = Completion(groups)
        for batch in batches:
            completion.take(batch)
        assert completion.take_loss(then) == completion.verdict == expected


@pytest.mark.parametrize(
    "verdict",
    [
        ALL_DONE,
        *(verdict for _, _, row in ROWS.values() for verdict in row if verdict),
        max_runtime(),
        gang_timeout(1, 3, 600),
        runtime_env_failed("no such package", 0, 1),
        runner_failed("killed"),
    ],
    ids=lambda verdict: verdict.code,
)
def test_verdicts_are_ends_of_runs(verdict: Verdict) -> None:
    assert EndClass(verdict.end_class) in EndClass
    assert EndCode(str(verdict.code)) in EndCode
    assert (verdict.exit_code == 0) == (verdict.end_class == EndClass.COMPLETED)


def test_a_stop_leaves_the_code_to_who_asked() -> None:
    assert (stopped().end_class, stopped().code) == (EndClass.STOPPED, None)


def test_a_long_message_keeps_its_end() -> None:
    params: dict[str, Any] = runner_failed("x" * 10_000 + "the reason").params
    assert params["message"].endswith("the reason")
    assert len(params["message"]) < 5000
    assert node_lost(0, 1).exit_code == EXIT_TASK_LOST
