"""Rows of jobs, runs, attempts and their logs."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, literal_column, text
from sqlalchemy.orm import Mapped, mapped_column

from kernel.db import Base, Named

_LIVE = text("deleted_at IS NULL")
_FINALS = ("SUCCEEDED", "FAILED", "STOPPED", "QUEUE_TIMEOUT")
_UNSETTLED = text(f"state NOT IN {_FINALS}")
_NOT_ENDED = text("state != 'ENDED'")
# Whoever looks for these rows says `IS_UNSETTLED` or `IS_NOT_ENDED`: a database takes the partial index only where it
# sees the same words, not parameters.


class JobRow(Named, Base):
    """The columns repeat what lists filter and sort by; the whole definition is in the current revision."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("uq_jobs_live_name", "name", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
        Index(None, "origin", "created_at"),
    )

    name: Mapped[str]
    origin: Mapped[str]
    revision: Mapped[int] = mapped_column(default=1)
    run_mode: Mapped[str]
    package_id: Mapped[str | None] = mapped_column(index=True)
    deleted_at: Mapped[datetime | None]


class JobRevisionRow(Base):
    __tablename__ = "job_revisions"
    __table_args__ = (UniqueConstraint("job_id", "revision"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    revision: Mapped[int]
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    created_by: Mapped[str]


class RunRow(Named, Base):
    """`queue` names the queue it waits in (`resource_group/x`, `cluster/x`, `cluster_group/x`).

    Lists are filtered by one of the indexed columns and come in the order of the ids, which is that of their making.
    """

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "state", "id"),
        Index(None, "job_id", "id", "state"),
        Index(None, "job_name", "id"),
        Index("ix_runs_cluster_name_id", "cluster", "id"),
        Index(None, "cluster_id", "state"),
        Index(None, "cluster_group", "id"),
        Index(None, "resource_group", "id"),
        Index(None, "created_by", "id"),
        Index("ix_runs_unsettled", "state", sqlite_where=_UNSETTLED, postgresql_where=_UNSETTLED),
        UniqueConstraint("target", "client_id"),
    )

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    job_revision: Mapped[int]
    job_name: Mapped[str]
    run_mode: Mapped[str]
    origin: Mapped[str]
    target: Mapped[str | None]
    """The address below `/ray` it was submitted to; None when it came by REST."""
    client_id: Mapped[str | None]
    """The submission id the Ray Jobs client chose or was given; unique per target."""
    queue: Mapped[str]
    priority: Mapped[int | None]
    max_wait_s: Mapped[int | None]
    max_runtime_s: Mapped[int | None]
    start_timeout_s: Mapped[int] = mapped_column(default=0)
    """How long a start may take before `max_runtime_s` begins to count."""
    demand: Mapped[dict[str, Any]]
    """What it asks of a cluster, or what the cluster made for it takes from its resource group."""
    task_groups: Mapped[list[Any]] = mapped_column(default=list)
    """`[[name, count], …]` of a gang; empty for a plain job."""
    resource_package: Mapped[str | None]
    resource_group: Mapped[str | None]
    cluster: Mapped[str | None]
    """Where it goes or went; for a group unknown until placed."""
    cluster_id: Mapped[str | None]
    cluster_group: Mapped[str | None]
    state: Mapped[str]
    condition: Mapped[dict[str, Any] | None]
    end: Mapped[dict[str, Any] | None]
    epoch: Mapped[int] = mapped_column(default=0)
    """Epoch of the latest attempt; 0 before the first."""
    tries: Mapped[int] = mapped_column(default=0)
    """Attempts that count for the job's retry; a start that is given back does not."""
    not_before: Mapped[datetime | None]
    """Until then it stays back in its queue."""
    stop_requested_by: Mapped[str | None]
    stop_code: Mapped[str | None]
    enqueued_at: Mapped[datetime]
    """Its place in the queue; a start that is given back and another try keep it."""
    waiting_since: Mapped[datetime]
    """What `max_wait_s` counts from: `enqueued_at`, or the end of an attempt that ran."""
    allocated_at: Mapped[datetime | None]
    """Full allocation (R8) of the present attempt."""
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class RunTagRow(Base):
    """Tags of a run's job as they were when it was submitted, for the filter `tag=key:value`."""

    __tablename__ = "run_tags"
    __table_args__ = (Index(None, "key", "value", "run_id"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class AttemptRow(Base):
    """`id` is the Ray submission id."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("run_id", "epoch"),
        Index("ix_attempts_not_ended", "cluster_id", "state", sqlite_where=_NOT_ENDED, postgresql_where=_NOT_ENDED),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(default=1)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    epoch: Mapped[int]
    cluster_id: Mapped[str]
    cluster: Mapped[str]
    demand: Mapped[dict[str, Any]]
    """What the ledger counts for it on that cluster."""
    placement: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """Of a gang: resources by node id, as planned until Ray has placed it."""
    state: Mapped[str]
    state_since: Mapped[datetime]
    created_at: Mapped[datetime]
    posted_at: Mapped[datetime | None]
    placing_at: Mapped[datetime | None]
    """Since when the driver of a gang waits for places."""
    allocated_at: Mapped[datetime | None]
    """Since when everything it asked for is its own (R8)."""
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    lost_timeout_s: Mapped[int] = mapped_column(default=900)
    """By the policy that was in force when it was placed; a later edit does not touch it."""
    on_cluster_loss: Mapped[str | None]
    """By the same policy: what becomes of its run when the cluster stays away; None: no policy says."""
    window_ends_at: Mapped[datetime | None]
    """By the same policy: when Muster stops it, as the window of its member closes."""
    lost_since: Mapped[datetime | None]
    """Since when the cluster has not answered for it."""
    lease_ttl_s: Mapped[int | None]
    """How long it goes on without word from Muster; None: it has no lease, and goes on whatever happens to Muster."""
    lease_until: Mapped[datetime | None]
    """Until when it may run by the last renewal that was accepted; None: none was, and nothing of the user's began."""
    runner_token_hash: Mapped[str | None]
    """Of the secret by which its runner is known; None until that has asked for the first time."""
    driver_address: Mapped[str | None]
    """HTTP address of the node agent that serves the driver's log and events."""
    events_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """How far the runner's events have been read."""
    verdict: Mapped[dict[str, Any] | None]
    """What the runner of a gang said of its end, before Ray says that it is over."""
    end: Mapped[dict[str, Any] | None]


class TaskRow(Base):
    """One task of a gang, as the runner's events tell; `task_group` is the group's index."""

    __tablename__ = "tasks"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    task_group: Mapped[int] = mapped_column(primary_key=True)
    task: Mapped[int] = mapped_column(primary_key=True)
    group_name: Mapped[str]
    state: Mapped[str]
    node_id: Mapped[str | None]
    container_ip: Mapped[str | None]
    host_ip: Mapped[str | None]
    agent_address: Mapped[str | None]
    """HTTP address of the node agent that serves its log."""
    exit_code: Mapped[int | None]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class UsageRow(Base):
    """What one attempt held, from full allocation on (R8), and what it cost before and in vain.

    Kept when the run itself is forgotten.
    """

    __tablename__ = "usage"
    __table_args__ = (Index(None, "began_at"), Index(None, "ended_at"))

    attempt_id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str]
    job_name: Mapped[str]
    created_by: Mapped[str]
    resource_group: Mapped[str | None]
    cluster: Mapped[str]
    amount: Mapped[dict[str, Any]]
    """Resources, as the ledger counts them."""
    held_from: Mapped[datetime]
    """When the first of it was reserved."""
    began_at: Mapped[datetime | None]
    """Full allocation; None for one that never had it."""
    ended_at: Mapped[datetime | None]
    cold_start_s: Mapped[float] = mapped_column(default=0)
    """How long its own cluster took to come up."""
    in_vain: Mapped[bool] = mapped_column(default=False)
    """It failed and another attempt followed."""


class LogRow(Base):
    """How far one log of an attempt has been copied; `task_group` is empty for the driver.

    `source_bytes` counts what was read on the node, `size_bytes` what people see: Ray's own two lines are left out.
    """

    __tablename__ = "logs"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True)
    task_group: Mapped[str] = mapped_column(primary_key=True, default="")
    task: Mapped[int] = mapped_column(primary_key=True, default=0)
    source_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    size_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Length so far, whether or not its middle was dropped."""
    header_done: Mapped[bool] = mapped_column(default=False)
    """The line in which Ray repeats the entrypoint has gone by."""
    segments: Mapped[list[Any]]
    """`[[offset, length], …]` of the stored pieces, in order."""
    complete: Mapped[bool] = mapped_column(default=False)
    note: Mapped[str | None]
    """Why the rest is missing, when it is."""


class DecisionRow(Base):
    """Why a run went, waits or failed where it did (policy.md §6); written when the answer changes."""

    __tablename__ = "decisions"
    __table_args__ = (Index(None, "run_id", "seq"),)

    seq: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    evaluated_at: Mapped[datetime]
    decision: Mapped[dict[str, Any]]


IS_UNSETTLED = RunRow.state.not_in([literal_column(f"'{state}'") for state in _FINALS])
IS_NOT_ENDED = AttemptRow.state != literal_column("'ENDED'")
