"""What the attempts loop does for gangs beside the rest: read the events of their runner, store what they say."""

from datetime import datetime
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from cluster_groups.model.cluster import Endpoint
from kernel.events import record
from rayjobs import run_store, task_store
from rayjobs.decide.attempt import COLLECT_PATIENCE_S
from rayjobs.decide.gang_events import Bounds, GangNews, read_events, whole_lines
from rayjobs.gateway.base import GatewayError, JobGateway, RayJob, RayStatus
from rayjobs.logs import runner_folder
from rayjobs.model.run import AttemptState
from rayjobs.snapshot import AttemptView
from rayjobs.tables import TaskRow

log = structlog.get_logger()

READ_BYTES = 2**20
MOST_BYTES = 4 * READ_BYTES
"""Read of the rest when the job is over: ten times what 1000 tasks can have to tell."""
READ_IN = frozenset({AttemptState.PLACING, AttemptState.RUNNING, AttemptState.STOPPING})


async def read_news(
    gateway: JobGateway, endpoint: Endpoint, view: AttemptView, job: RayJob, now: datetime
) -> GangNews | None:
    """None: nothing new. Of a job that is over all there is, because it is judged by it.

    What cannot be read is asked for again: only after a while a job that is over is judged without it.
    Raises GatewayError.
    """
    is_over = job.status not in {RayStatus.PENDING, RayStatus.RUNNING}
    address = view.driver_address or job.driver_address
    if address is None or not (is_over or view.state in READ_IN):
        return None
    data = b""
    try:
        while len(data) < MOST_BYTES:
            path, offset = f"{runner_folder(view.id)}/events.jsonl", view.events_bytes + len(data)
            more = await gateway.read_log(endpoint, address, path, offset=offset, limit_bytes=READ_BYTES)
            data += more
            if not is_over or len(more) < READ_BYTES:
                break
    except GatewayError:
        waited_s = (now - (view.lost_since or now)).total_seconds()
        if is_over and waited_s < COLLECT_PATIENCE_S:
            raise
        return None
    bounds = Bounds(groups=view.task_groups, earliest=view.posted_at or view.created_at, now=now)
    news = read_events(whole_lines(data, READ_BYTES), bounds)
    if news.skipped:
        log.warning("events_skipped", attempt=view.id, lines=news.skipped)
    return news if news.read_bytes else None


async def store_news(session: AsyncSession, view: AttemptView, news: GangNews, now: datetime) -> dict[str, Any]:
    """Tasks and the timeline; what is left for the attempt's own row is returned."""
    values: dict[str, Any] = {"events_bytes": view.events_bytes + news.read_bytes}
    if news.verdict is not None:
        values["verdict"] = run_store.end_to_json(news.verdict)
    tasks, failed = await task_store.write_news(session, view.id, view.task_groups, news.tasks)
    wanted = sum(group.count for group in view.task_groups)
    if news.wanted_at is not None and view.started_at is None:
        record(session, view.run_id, "GANG_WAITING", at=news.wanted_at, attempt=view.id, wanted=wanted)
    if news.allocated_at is not None and view.started_at is None:
        record(session, view.run_id, "GANG_ALLOCATED", at=news.allocated_at, attempt=view.id, tasks=wanted)
        placement = task_store.placement_of(tasks, view.task_groups)
        if placement is not None:
            values["placement"] = {node: run_store.resources_to_json(amount) for node, amount in placement.items()}
    for task in failed:
        _tell_failed(session, view, task, now)
    return values


def _tell_failed(session: AsyncSession, view: AttemptView, task: TaskRow, now: datetime) -> None:
    record(
        session, view.run_id, "TASK_ENDED", at=task.ended_at or now, attempt=view.id, state=task.state,
        task_group=task.group_name, task=task.task, exit_code=task.exit_code,
    )  # fmt: skip
