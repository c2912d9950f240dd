"""`/healthz`, `/readyz`, `/metrics`: for whoever keeps the service up; no token, no names of people."""

from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from api.deps import services_of
from api.readiness import check_all, count_figures
from api.schemas.health import HealthOut

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> HealthOut:
    """The process answers."""
    return HealthOut(ok=True, version=version("muster"), checks=[])


@router.get("/readyz", response_model=HealthOut)
async def readyz(request: Request) -> Response:
    """Database, loops and stores do what they should; 503 else, with the one that does not."""
    checks = await check_all(services_of(request))
    health = HealthOut(ok=all(check.ok for check in checks), version=version("muster"), checks=checks)
    content = health.model_dump_json()
    return Response(content, status_code=200 if health.ok else 503, media_type="application/json")


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    services = services_of(request)
    async with services.database.read() as session:
        figures = await count_figures(session, services.pools)
    return Response(services.metrics.render(figures, services.loops), media_type=CONTENT_TYPE_LATEST)
