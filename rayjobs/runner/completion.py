"""When the tasks that have ended decide the job, and how (requirements 2.1, R28-R32, A2-A9).

A decision over ends of tasks in their order: no clock, no I/O. Whoever is stopped because the job is over is no end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .spec import GroupSpec
from .verdict import Verdict, killed_by, node_lost

_NEVER = float("inf")


class TaskEnd(NamedTuple):
    """A task that ended by itself; without an exit code it was lost, with its node or its actor."""

    group: int
    task: int
    exit_code: int | None
    signal: int | None = None

    @property
    def is_lost(self) -> bool:
        return self.exit_code is None


class Completion:
    """Counts ends against the groups' thresholds. The first verdict stands."""

    def __init__(self, groups: Sequence[GroupSpec]) -> None:
        is_alone = sum(group.tasks for group in groups) == 1  # R32
        self.verdict: Verdict | None = None
        self._groups = groups
        self._left = sum(group.tasks for group in groups)
        self._min_failed = [_threshold(None if is_alone else group.min_failed, blank=1) for group in groups]
        self._min_succeeded = [_threshold(None if is_alone else group.min_succeeded, blank=_NEVER) for group in groups]
        self._failed = [0] * len(groups)
        self._succeeded = [0] * len(groups)
        self._failed_before = list(self._failed)

    def take(self, batch: Iterable[TaskEnd]) -> Verdict | None:
        """`batch` came at once: its order is chance, a failure in it wins, and a loss is what made others fail."""
        if self.verdict:
            return self.verdict
        self._failed_before = list(self._failed)
        failed = succeeded = None
        for end in sorted(batch, key=lambda one: (not one.is_lost, one.group, one.task)):
            self._left -= 1
            if end.exit_code == 0:
                fired = self._success(end)
                succeeded = succeeded or fired
            else:
                failed = failed or self._failure(end)
        is_over = self._left == 0
        self.verdict = failed or succeeded or (Verdict("completed", "ALL_TASKS_DONE", 0) if is_over else None)
        return self.verdict

    def take_loss(self, lost: TaskEnd) -> Verdict | None:
        """Found lost only while the others were being stopped.

        Who talks to a dead node fails at once; Ray notices the death seconds later. So a loss goes before the failure
        that was seen first, and decides if it would have decided there.
        """
        is_failure = self.verdict is not None and self.verdict.end_class == "user"
        if is_failure and self._failed_before[lost.group] + 1 >= self._min_failed[lost.group]:
            self.verdict = node_lost(lost.group, lost.task)
        return self.verdict

    def _success(self, end: TaskEnd) -> Verdict | None:
        self._succeeded[end.group] += 1
        if self._succeeded[end.group] != self._min_succeeded[end.group]:
            return None
        params = {"task_group": self._groups[end.group].name, "succeeded": self._succeeded[end.group]}
        return Verdict("completed", "MIN_SUCCEEDED", 0, end.group, end.task, params)

    def _failure(self, end: TaskEnd) -> Verdict | None:
        self._failed[end.group] += 1
        threshold = self._min_failed[end.group]
        if self._failed[end.group] < threshold:
            return None
        if end.exit_code is None:
            return node_lost(end.group, end.task)
        if threshold == 1:
            return _single_failure(end, end.exit_code)
        name = self._groups[end.group].name
        params = {"task_group": name, "failed": self._failed[end.group], "min_failed": threshold}
        return Verdict("user", "MIN_FAILED", end.exit_code, end.group, end.task, params)


def _threshold(given: int | None, blank: float) -> float:
    """-1 switches a rule off."""
    if given is None:
        return blank
    return given if given >= 1 else _NEVER


def _single_failure(end: TaskEnd, exit_code: int) -> Verdict:
    if name := killed_by(-end.signal if end.signal else exit_code):
        return Verdict("user", "SIGNAL", exit_code, end.group, end.task, {"signal": name})
    return Verdict("user", "EXIT_NONZERO", exit_code, end.group, end.task, {"exit_code": exit_code})
