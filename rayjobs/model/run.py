"""A run is one execution of one revision; an attempt is one try of it on one cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from kernel.states import Transitions, finals


class RunState(StrEnum):
    SUBMITTED = "SUBMITTED"
    """Stored, not yet looked at by admission."""
    WAITING = "WAITING"
    """Looked at; its condition says what it waits for."""
    STARTING = "STARTING"
    """It has its place; cluster, environment and driver are being made ready."""
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    QUEUE_TIMEOUT = "QUEUE_TIMEOUT"


RUN_TRANSITIONS: Transitions[RunState] = {
    RunState.SUBMITTED: frozenset(
        {RunState.WAITING, RunState.STARTING, RunState.FAILED, RunState.STOPPED, RunState.QUEUE_TIMEOUT}
    ),
    # STARTING and RUNNING → WAITING: a start that is given back, an attempt that is tried again
    RunState.WAITING: frozenset({RunState.STARTING, RunState.FAILED, RunState.STOPPED, RunState.QUEUE_TIMEOUT}),
    RunState.STARTING: frozenset(
        {
            RunState.WAITING,
            RunState.RUNNING,
            RunState.STOPPING,
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.STOPPED,
        }
    ),
    RunState.RUNNING: frozenset(
        {RunState.WAITING, RunState.STOPPING, RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED}
    ),
    RunState.STOPPING: frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.STOPPED: frozenset(),
    RunState.QUEUE_TIMEOUT: frozenset(),
}

RUN_FINALS = finals(RUN_TRANSITIONS)
WAITING_STATES = frozenset({RunState.SUBMITTED, RunState.WAITING})
PLACED_STATES = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})
"""States in which a run holds room on a cluster."""


class EndClass(StrEnum):
    """Who has to act on an end; the retry table of requirements §2.3 is by these."""

    COMPLETED = "completed"
    USER = "user"
    PLATFORM = "platform"
    ENVIRONMENT = "environment"
    PLACEMENT = "placement"
    LOST = "lost"
    STOPPED = "stopped"
    TIMEOUT = "timeout"


class EndCode(StrEnum):
    ALL_TASKS_DONE = "ALL_TASKS_DONE"
    MIN_SUCCEEDED = "MIN_SUCCEEDED"
    """Enough tasks of one group succeeded (R28)."""
    MIN_FAILED = "MIN_FAILED"
    """More than one task of a group failed, as many as its `min_failed` allows for (R30)."""
    EXIT_NONZERO = "EXIT_NONZERO"
    SIGNAL = "SIGNAL"
    BY_USER = "BY_USER"
    FORCED = "FORCED"
    """Its cluster was stopped or deleted under it, on somebody's word."""
    WINDOW_ENDED = "WINDOW_ENDED"
    """The window of its member closed, and the policy of the group ends what runs there then."""
    STOPPED_OUTSIDE = "STOPPED_OUTSIDE"
    """Stopped on the cluster, past Muster."""
    RUNTIME_ENV_FAILED = "RUNTIME_ENV_FAILED"
    RUNTIME_ENV_TIMEOUT = "RUNTIME_ENV_TIMEOUT"
    DEPENDENCY_NOT_FOUND = "DEPENDENCY_NOT_FOUND"
    DEPENDENCY_CONFLICT = "DEPENDENCY_CONFLICT"
    DEPENDENCY_NOT_INSTALLABLE = "DEPENDENCY_NOT_INSTALLABLE"
    """It is there, but cannot be built, or is for another Python, or is not what its hash says."""
    PACKAGE_INDEX_UNREACHABLE = "PACKAGE_INDEX_UNREACHABLE"
    CONDA_NOT_FOUND = "CONDA_NOT_FOUND"
    PACKAGE_MISSING = "PACKAGE_MISSING"
    PACKAGE_TOO_LARGE_FOR_CLUSTER = "PACKAGE_TOO_LARGE_FOR_CLUSTER"
    """Ray does not take it, and its nodes do not fetch it: they are not Muster's."""
    MOUNT_IMPOSSIBLE = "MOUNT_IMPOSSIBLE"
    """The volume is gone, or the cluster no longer has it."""
    CALLBACK_NEEDED = "CALLBACK_NEEDED"
    """Nodes are to fetch something from this service, which has no `callback_url`."""
    NODE_NOT_PREPARED = "NODE_NOT_PREPARED"
    """A volume could not be mounted on it, or a large package not fetched."""
    DRIVER_NOT_STARTED = "DRIVER_NOT_STARTED"
    DRIVER_LOST = "DRIVER_LOST"
    """Ray's supervisor of the driver died."""
    RUNNER_FAILED = "RUNNER_FAILED"
    """The runner or its guard was killed, or could not start the command."""
    SUBMIT_REFUSED = "SUBMIT_REFUSED"
    CLUSTER_START_FAILED = "CLUSTER_START_FAILED"
    START_TIMEOUT = "START_TIMEOUT"
    GANG_TIMEOUT = "GANG_TIMEOUT"
    """Not all tasks had their place within `gang_timeout_s`; the run waits again (R9)."""
    HEAD_LOST = "HEAD_LOST"
    NODE_LOST = "NODE_LOST"
    CLUSTER_LOST = "CLUSTER_LOST"
    LEASE_LOST = "LEASE_LOST"
    """It ended itself, or did not begin: it was no longer sure to be the only attempt."""
    CLUSTER_DELETED = "CLUSTER_DELETED"
    TARGET_DELETED = "TARGET_DELETED"
    """The resource group or cluster group it waited for was deleted."""
    MAX_RUNTIME = "MAX_RUNTIME"
    MAX_WAIT = "MAX_WAIT"


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """Why a run or an attempt is over. `params` fill the texts `detail` and `advice` of the code."""

    end_class: EndClass
    code: EndCode
    exit_code: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    task_group: str | None = None
    """Of a gang: the task whose end decided it."""
    task: int | None = None

    @property
    def run_state(self) -> RunState:
        if self.end_class is EndClass.COMPLETED:
            return RunState.SUCCEEDED
        if self.end_class is EndClass.STOPPED:
            return RunState.STOPPED
        return RunState.QUEUE_TIMEOUT if self.code is EndCode.MAX_WAIT else RunState.FAILED


class AttemptState(StrEnum):
    """The steps of one try. Each is stored before its act, so that a restart takes up where it was."""

    CLUSTER = "CLUSTER"
    """Waiting for the cluster made for this run to come up (on_demand only)."""
    POSTING = "POSTING"
    """Package and runner are brought to the cluster and the submission is sent: only the cluster can say whether it
    arrived."""
    PENDING = "PENDING"
    """Accepted by Ray, no driver yet."""
    PLACING = "PLACING"
    """The driver of a gang runs and waits until every task has its place."""
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    """A stop was asked for; Ray has not confirmed that everything is gone."""
    COLLECTING = "COLLECTING"
    """Over on the cluster; the rest of its log is being copied."""
    RELEASING = "RELEASING"
    """Its own cluster is being deleted (on_demand only), or Ray's record of it."""
    ENDED = "ENDED"


ATTEMPT_TRANSITIONS: Transitions[AttemptState] = {
    AttemptState.CLUSTER: frozenset({AttemptState.POSTING, AttemptState.RELEASING}),
    AttemptState.POSTING: frozenset({AttemptState.PENDING, AttemptState.COLLECTING, AttemptState.RELEASING}),
    AttemptState.PENDING: frozenset(
        {AttemptState.PLACING, AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.COLLECTING}
    ),
    AttemptState.PLACING: frozenset({AttemptState.RUNNING, AttemptState.STOPPING, AttemptState.COLLECTING}),
    AttemptState.RUNNING: frozenset({AttemptState.STOPPING, AttemptState.COLLECTING}),
    AttemptState.STOPPING: frozenset({AttemptState.COLLECTING}),
    AttemptState.COLLECTING: frozenset({AttemptState.RELEASING}),
    AttemptState.RELEASING: frozenset({AttemptState.ENDED}),
    AttemptState.ENDED: frozenset(),
}


class TaskState(StrEnum):
    """Of one task of a gang."""

    WAITING = "WAITING"
    """Without a place, or not started there."""
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    """By its own exit code or a signal, or its node went away."""
    STOPPED = "STOPPED"
    """Because the run was over (A9), or lost: how it would have ended nobody knows."""


TASK_ENDS = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.STOPPED})


def submission_id(run_id: str, epoch: int) -> str:
    """The attempt's name on Ray, derived so that it is the same after any restart (design.md §1)."""
    return f"{run_id}-a{epoch}"


def run_of(submission: str) -> str:
    """The run that a submission id of Muster's belongs to."""
    return submission.rpartition("-a")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """What a waiting run waits for (or, CLUSTER_LOST, what a running one has lost)."""

    code: str
    owner: str
    params: Mapping[str, Any]
    since: datetime
    predicted_start: datetime | None = None
    """Where it can be known: all that it depends on have declared their limits."""
