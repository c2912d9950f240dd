"""`/usage` (api.md §7), also as CSV for whoever asks for that."""

from datetime import timedelta
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Depends, Query, Response
from pydantic import AwareDatetime

from api.csv_text import MEDIA_TYPE, to_csv
from api.deps import Parting, Reading
from api.edge import v1_router
from api.schemas.base import PageOut
from api.schemas.usage import UsageOut
from kernel.clock import instant
from kernel.errors import InvalidInput
from rayjobs.usage import GroupBy, Interval, usage_in

DEFAULT_LENGTH = timedelta(days=30)
_SORTABLE = ("key", "cpu_seconds", "memory_gib_seconds", "runs")

router = v1_router("usage")


async def asked_interval(
    call: Reading,
    start: Annotated[AwareDatetime | None, Query(alias="from", description="30 days before `to` without it.")] = None,
    end: Annotated[AwareDatetime | None, Query(alias="to", description="Now without it.")] = None,
) -> Interval:
    end = end or call.services.clock.now()
    start = start or end - DEFAULT_LENGTH
    if start >= end:
        raise InvalidInput("INTERVAL_EMPTY", pointer="/from", start=instant(start), end=instant(end))
    return Interval(start=start, end=end)


@router.get(
    "/usage",
    response_model=PageOut[UsageOut],
    responses={200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}},
)
async def show_usage(
    call: Reading,
    part: Parting,
    interval: Annotated[Interval, Depends(asked_interval)],
    group_by: GroupBy = GroupBy.RESOURCE_GROUP,
    sort: Annotated[str, Query(description=f"One of {', '.join(_SORTABLE)}; `-` before it for descending.")] = "key",
) -> Any:
    """What runs held from their full allocation on, and what did no work; what is still held counts until now."""
    name = sort.removeprefix("-")
    if name not in _SORTABLE:
        raise InvalidInput("INVALID_SORT", pointer="/sort", sort=sort, allowed=list(_SORTABLE))
    async with call.read() as session:
        usages = await usage_in(session, interval, group_by, call.services.clock.now())
    value = attrgetter(name) if name != "key" else lambda row: row.key or ""
    rows = sorted(map(UsageOut.of, usages), key=value, reverse=sort.startswith("-"))
    page: PageOut[UsageOut] = PageOut(**part.of(rows))
    if MEDIA_TYPE not in call.request.headers.get("accept", ""):
        return page
    text = to_csv([row.model_dump() for row in page.items], _SORTABLE)
    return Response(text, media_type=MEDIA_TYPE, headers={"Content-Disposition": 'attachment; filename="usage.csv"'})
