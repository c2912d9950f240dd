"""Whether the parts Muster stands on do what they should, and what of its state is counted for Prometheus."""

from collections.abc import Awaitable, Callable

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.metrics import Figures
from api.schemas.health import CheckOut
from api.wiring import Services
from cluster_groups.model.cluster import ClusterState
from cluster_groups.model.health import HealthStatus
from cluster_groups.service.resources import ResourcePools
from cluster_groups.tables import ClusterRow
from kernel.errors import MusterError
from rayjobs.model.run import WAITING_STATES
from rayjobs.tables import RunRow

MAX_LAG_S = 60.0


async def check_all(services: Services) -> list[CheckOut]:
    parts = [
        await _check("database", services.database.ping),
        await _check("blob store", lambda: services.blobs.size_bytes("ready")),
    ]
    loops = [
        CheckOut(
            name=f"loop {loop.reconciler.name}",
            ok=loop.lag_s < MAX_LAG_S and not loop.is_failing,
            detail=loop.last_error,
        )
        for loop in services.loops
    ]
    return [*parts, *loops]


async def count_figures(session: AsyncSession, pools: ResourcePools) -> Figures:
    runs = await session.execute(select(RunRow.state, func.count()).group_by(RunRow.state))
    code = RunRow.condition["code"].as_string()
    waiting = await session.execute(
        select(code, func.count()).where(RunRow.state.in_(WAITING_STATES), code.is_not(None)).group_by(code)
    )
    status = func.coalesce(ClusterRow.health["status"].as_string(), HealthStatus.PENDING)
    shown = (ClusterRow.state != ClusterState.DELETED, ClusterRow.on_demand_run.is_(None))
    clusters = await session.execute(select(ClusterRow.name, status).where(*shown))
    return Figures(
        runs={state: count for state, count in runs},  # noqa: C416 - rows are tuples to people, not to mypy
        waiting={code: count for code, count in waiting},  # noqa: C416 - the same
        clusters=[(name, status) for name, status in clusters],
        quota={name: use.by_resource() for name, use in (await pools.use_of_all(session)).items()},
    )


async def _check(name: str, look: Callable[[], Awaitable[object]]) -> CheckOut:
    try:
        await look()
    except (MusterError, OSError) as error:
        return CheckOut(name=name, ok=False, detail=str(error))
    return CheckOut(name=name, ok=True)
