"""What the service throws away by itself."""

from datetime import timedelta

import pytest
import structlog
from sqlalchemy import func, select

from api import cleaning
from api.cleaning import DAY_S, HOUR_S, Cleaning
from api.tables import IdempotencyRow
from api.wiring import Services
from rayjobs.retention import Keep

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # nothing here is about the database


async def test_a_failure_is_told_and_tried_again_within_the_day(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_parts: object) -> None:
        raise PermissionError("not yours")

    old = services.clock.now() - timedelta(days=2)
    row = IdempotencyRow(user="ann", key="k", request_digest="", status=201, headers={}, body=None, created_at=old)
    async with services.database.write() as session:
        session.add(row)
    keep = Keep(runs_days=1, logs_days=1)
    work = Cleaning(database=services.database, blobs=services.blobs, clock=services.clock, keep=keep)
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(cleaning, "expire", fail)
        assert await work.try_once() == HOUR_S
    assert [line["event"] for line in logs] == ["clean_failed"]
    assert await work.try_once() == DAY_S
    async with services.database.read() as session:
        assert await session.scalar(select(func.count()).select_from(IdempotencyRow)) == 0
