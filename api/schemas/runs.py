"""Runs, their tasks, events and logs (api.md §3)."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.conditions import condition_words
from api.schemas.base import In
from api.schemas.decisions import DecisionOut
from api.texts import Language, say
from kernel.events import EventRow
from rayjobs.explain import Explanation
from rayjobs.model.run import Condition, End
from rayjobs.phases import Phase
from rayjobs.run_report import RunReport, told_end
from rayjobs.run_store import condition_from_json
from rayjobs.standing import Standing
from rayjobs.tables import AttemptRow, RunRow
from rayjobs.task_report import GroupReport, TaskReport

MAX_NUMBER = 2**31 - 1
"""Of a task, an attempt or a revision: what the database takes."""


class RunCreate(In):
    priority: int | None = None
    max_wait_s: int | None = None


class RunEdit(In):
    priority: int


class ConditionOut(BaseModel):
    code: str
    detail: str
    advice: str | None
    owner: str
    params: dict[str, Any]
    since: datetime
    position: int | None
    ahead: list[str] | None
    predicted_start: datetime | None = None
    next_check_at: datetime | None = None

    @classmethod
    def of(
        cls, condition: Condition, standing: Standing | None, language: Language, next_check_at: datetime | None = None
    ) -> "ConditionOut":
        words = condition_words(condition, language)
        return cls(
            code=condition.code,
            detail=words.detail,
            advice=words.advice,
            owner=condition.owner,
            params=dict(condition.params),
            since=condition.since,
            predicted_start=condition.predicted_start,
            position=standing.position if standing else None,
            ahead=standing.ahead if standing else None,
            next_check_at=next_check_at or condition.params.get("not_before"),
        )


class EndOut(BaseModel):
    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    end_class: str = Field(alias="class")
    code: str
    exit_code: int | None
    detail: str
    advice: str | None
    params: dict[str, Any]
    task_group: str | None = None
    task: int | None = None

    @classmethod
    def of(cls, end: End, language: Language) -> "EndOut":
        words = say(end.code, {"exit_code": end.exit_code, **end.params}, language)
        return cls(
            end_class=end.end_class,
            code=end.code,
            exit_code=end.exit_code,
            detail=words.detail,
            advice=words.advice,
            params=dict(end.params),
            task_group=end.task_group,
            task=end.task,
        )


class PhaseOut(BaseModel):
    name: str
    state: str
    detail: dict[str, Any] | None
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, phase: Phase) -> "PhaseOut":
        return cls.model_validate(phase, from_attributes=True)


class AttemptOut(BaseModel):
    epoch: int
    cluster: str
    submission_id: str
    state: str
    started_at: datetime | None
    ended_at: datetime | None
    end: EndOut | None

    @classmethod
    def of(cls, row: AttemptRow, stopped_by: str | None, language: Language) -> "AttemptOut":
        end = told_end(row, stopped_by)
        return cls(
            epoch=row.epoch,
            cluster=row.cluster,
            submission_id=row.id,
            state=row.state,
            started_at=row.started_at,
            ended_at=row.ended_at,
            end=EndOut.of(end, language) if end else None,
        )


class TaskGroupOut(BaseModel):
    name: str
    index: int
    count: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    stopped: int

    @classmethod
    def of(cls, group: GroupReport) -> "TaskGroupOut":
        return cls.model_validate(group, from_attributes=True)


class RunOut(BaseModel):
    id: str
    job: str
    job_revision: int
    run_mode: str
    origin: str
    ray_submission_id: str | None
    """By which the Ray Jobs endpoint knows it."""
    priority: int | None
    effective_priority: int | None
    state: str
    condition: ConditionOut | None
    phases: list[PhaseOut]
    cluster: str | None
    cluster_group: str | None
    resource_package: str | None
    resource_group: str | None
    attempts: list[AttemptOut]
    end: EndOut | None
    task_groups: list[TaskGroupOut]
    failed_tasks: int
    max_wait_s: int | None
    stop_requested_by: str | None
    allocated_at: datetime | None
    created_at: datetime
    created_by: str
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, report: RunReport, language: Language) -> "RunOut":
        row, why = report.row, report.condition
        return cls(
            id=row.id,
            job=row.job_name,
            job_revision=row.job_revision,
            run_mode=row.run_mode,
            origin=row.origin,
            ray_submission_id=row.client_id,
            priority=row.priority,
            effective_priority=report.effective_priority,
            state=row.state,
            condition=ConditionOut.of(why, report.standing, language, row.not_before) if why else None,
            phases=[PhaseOut.of(phase) for phase in report.phases],
            cluster=row.cluster,
            cluster_group=row.cluster_group,
            resource_package=row.resource_package,
            resource_group=row.resource_group,
            attempts=[AttemptOut.of(attempt, row.stop_requested_by, language) for attempt in report.attempts],
            end=EndOut.of(report.end, language) if report.end else None,
            task_groups=[TaskGroupOut.of(group) for group in report.groups],
            failed_tasks=report.failed_tasks,
            max_wait_s=row.max_wait_s,
            stop_requested_by=row.stop_requested_by,
            allocated_at=row.allocated_at,
            created_at=row.created_at,
            created_by=row.created_by,
            started_at=row.started_at,
            ended_at=row.ended_at,
        )


class TaskOut(BaseModel):
    group: str
    group_index: int
    index: int
    state: str
    exit_code: int | None
    node_ip: str | None
    container_ip: str | None
    host_ip: str | None
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, task: TaskReport) -> "TaskOut":
        return cls.model_validate(task, from_attributes=True)


class EventOut(BaseModel):
    id: str
    at: datetime
    type: str
    actor: str
    params: dict[str, Any]

    @classmethod
    def of(cls, row: EventRow) -> "EventOut":
        return cls(id=f"evt_{row.seq:026d}", at=row.at, type=row.type, actor=row.actor, params=row.params)


class QueueRow(BaseModel):
    run: str
    job: str
    ray_submission_id: str | None
    position: int
    effective_priority: int
    condition: ConditionOut | None
    predicted_start: datetime | None = None

    @classmethod
    def of(cls, row: RunRow, place: tuple[int, int], language: Language) -> "QueueRow":
        """`place` is its position and its effective priority."""
        condition = condition_from_json(row.condition)
        return cls(
            run=row.id,
            job=row.job_name,
            ray_submission_id=row.client_id,
            position=place[0],
            effective_priority=place[1],
            condition=ConditionOut.of(condition, None, language) if condition else None,
            predicted_start=condition.predicted_start if condition else None,
        )


class ExplanationOut(BaseModel):
    """`outcome` is dispatched, waiting or failed; the decision is that of `GET /runs/{id}/decisions`."""

    outcome: str
    decision: DecisionOut | None
    code: str | None
    detail: str | None
    advice: str | None

    @classmethod
    def of(cls, told: Explanation, language: Language) -> "ExplanationOut":
        why, words = told.reason or told.end, None
        if told.reason:
            words = condition_words(told.reason, language)
        elif told.end:
            words = say(told.end.code, told.end.params, language)
        return cls(
            outcome="failed" if told.end else "waiting" if told.reason else "dispatched",
            decision=DecisionOut.of(told.decision, language) if told.decision else None,
            code=why.code if why else None,
            detail=words.detail if words else None,
            advice=words.advice if words else None,
        )


class Items(BaseModel):
    """All there is: these lists end with their run."""

    items: list[Any]
    next_cursor: str | None = None


class LogChunk(BaseModel):
    offset: int
    next_offset: int
    data: str
    complete: bool
    note: str | None = None
    """Why the rest of a complete log is missing, when it is: `CLUSTER_GONE`, `NODE_GONE`."""


class RunChange(BaseModel):
    """One line of `/runs/stream`."""

    id: str
    job: str
    state: str
    condition: str | None
    end: str | None
