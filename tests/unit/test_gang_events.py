"""The events of a gang's runner as claims: what they may say, and what nobody believes."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayjobs.decide.gang_events import Bounds, GangNews, read_events, whole_lines
from rayjobs.model.job import TaskGroup
from rayjobs.model.run import End, EndClass, EndCode, TaskState
from tests.builders.runs import NOW

GROUPS = (TaskGroup(name="a", count=2, entrypoint="x"), TaskGroup(name="b", count=1, entrypoint="y"))
BOUNDS = Bounds(groups=GROUPS, earliest=NOW - timedelta(hours=1), now=NOW)


def read(*events: dict[str, Any]) -> GangNews:
    at = {"at": NOW.timestamp()}
    return read_events(b"".join(json.dumps(at | event).encode() + b"\n" for event in events), BOUNDS)


def ended(**facts: Any) -> dict[str, Any]:
    return {"type": "task_ended", "group": 0, "task": 0, "exit_code": None, "signal": None, "how": "exited"} | facts


def a_verdict(end_class: str, code: str | None, **facts: Any) -> dict[str, Any]:
    return {
        "type": "verdict",
        "end_class": end_class,
        "code": code,
        "exit_code": 1,
        "group": None,
        "task": None,
    } | facts


class TestTasks:
    @pytest.mark.parametrize(
        ("facts", "state", "exit_code"),
        [
            ({"exit_code": 0}, TaskState.SUCCEEDED, 0),
            ({"exit_code": 3}, TaskState.FAILED, 3),
            ({"exit_code": 137, "signal": 9}, TaskState.FAILED, 137),
            ({"signal": 9}, TaskState.FAILED, 137),
            ({"how": "stopped", "exit_code": 143}, TaskState.STOPPED, 143),
            ({"how": "lost"}, TaskState.FAILED, None),
        ],
    )
    def test_ends(self, facts: dict[str, Any], state: TaskState, exit_code: int | None) -> None:
        task = read(ended(**facts)).tasks[0, 0]
        assert (task.state, task.exit_code, task.ended_at) == (state, exit_code, NOW)

    def test_what_has_ended_does_not_start_again(self) -> None:
        started = {"type": "task_started", "group": 0, "task": 0}
        task = read(started, ended(exit_code=0), started, ended(exit_code=1)).tasks[0, 0]
        assert (task.state, task.exit_code) == (TaskState.SUCCEEDED, 0)

    @pytest.mark.parametrize(
        "event",
        [
            {"type": "task_started", "group": 2, "task": 0},
            {"type": "task_started", "group": 0, "task": 2},
            {"type": "task_started", "group": 0, "task": -1},
            {"type": "task_started", "group": True, "task": 0},
            {"type": "task_started", "group": "0", "task": 0},
            {"type": "task_started", "task": 0},
            {"type": "task_started", "group": 0, "task": 0, "at": "yesterday"},
            {"type": "task_placed", "group": 0, "task": 0, "node_id": 7, "ip": "x", "host_ip": "x", "agent": "x"},
            ended(how="vanished"),
            ended(exit_code=10**40),
            {"type": "something_new"},
            a_verdict("completed", "NODE_LOST"),
            a_verdict("user", "MIN_FAILED", params={"task_group": "a", "failed": "two", "min_failed": 1}),
            a_verdict("user", "EXIT_NONZERO", params={"exit_code": 1}, group=0, task=5),
        ],
    )
    def test_nonsense_is_counted_and_passed_over(self, event: dict[str, Any]) -> None:
        news = read(event)
        assert (news.skipped, news.tasks, news.verdict) == (1, {}, None)


class TestTimes:
    def test_a_wrong_clock_stays_within_what_is_possible(self) -> None:
        ahead, behind = NOW.timestamp() + 10**6, 0
        assert read({"type": "gang_allocated", "at": ahead}).allocated_at == NOW
        assert read({"type": "gang_allocated", "at": behind}).allocated_at == BOUNDS.earliest

    def test_the_first_allocation_counts(self) -> None:
        news = read({"type": "gang_allocated", "at": NOW.timestamp() - 60}, {"type": "gang_allocated"})
        assert news.allocated_at == NOW - timedelta(seconds=60)


class TestVerdict:
    def test_names_the_task(self) -> None:
        news = read(a_verdict("user", "EXIT_NONZERO", exit_code=3, group=1, task=0, params={"exit_code": 3, "x": 1}))
        assert news.verdict == End(
            end_class=EndClass.USER,
            code=EndCode.EXIT_NONZERO,
            exit_code=3,
            params={"exit_code": 3},
            task_group="b",
            task=0,
        )

    def test_the_last_one_counts(self) -> None:
        news = read(a_verdict("completed", "ALL_TASKS_DONE", exit_code=0), a_verdict("lost", "NODE_LOST"))
        assert news.verdict is not None
        assert news.verdict.code is EndCode.NODE_LOST

    def test_a_stop_is_left_to_muster(self) -> None:
        news = read(a_verdict("stopped", None))
        assert (news.verdict, news.skipped) == (None, 0)

    def test_texts_are_such_as_a_database_takes(self) -> None:
        params = {"message": "a\0b\ud800" + "x" * 10_000}
        news = read(a_verdict("platform", "RUNNER_FAILED", params=params))
        assert news.verdict is not None
        told = news.verdict.params["message"]
        assert told.startswith("ab?x")
        assert len(told) <= 4000


class TestLines:
    def test_the_last_half_line_waits(self) -> None:
        assert whole_lines(b"a\nb", 100) == b"a\n"
        assert whole_lines(b"ab", 100) == b""

    def test_a_line_longer_than_all_that_is_read_is_given_up(self) -> None:
        assert whole_lines(b"a" * 100, 100) == b"a" * 100

    @given(
        st.lists(st.binary() | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(repr).map(str.encode))
    )
    def test_no_file_breaks_the_reading(self, lines: list[bytes]) -> None:
        data = b"\n".join(lines)
        assert read_events(data, BOUNDS).read_bytes == len(data)

    @given(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["task_started", "task_ended", "task_placed", "gang_allocated", "verdict"])},
            optional=dict.fromkeys(
                ("at", "group", "task", "how", "exit_code", "signal", "code", "end_class", "params", "node_id"),
                st.none() | st.integers() | st.floats() | st.text() | st.dictionaries(st.text(), st.integers()),
            ),
        )
    )
    def test_whatever_a_field_holds_it_is_news_or_nonsense(self, event: dict[str, Any]) -> None:
        news = read_events(json.dumps(event).encode() + b"\n", BOUNDS)
        assert news.skipped in {0, 1}
        assert all(group < 2 and task < GROUPS[group].count for group, task in news.tasks)
