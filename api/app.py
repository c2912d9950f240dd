"""The HTTP application over a set of services; it opens nothing itself (`api.wiring.running` does)."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException

from api.dashboard import routes as dashboard
from api.edge import Edge
from api.errors import MEDIA_TYPE, answer_http_exception, answer_invalid_request, answer_muster_error
from api.idempotency import Replay, answer_replay
from api.ray_endpoint.routes import ray_endpoint
from api.routers import (
    access,
    clusters,
    credentials,
    groups,
    health,
    jobs,
    logs,
    packages,
    resources,
    runner,
    runs,
    uploads,
    usage,
    volumes,
)
from api.schemas.base import ProblemOut
from api.wiring import Services
from kernel.errors import MusterError

ROUTERS = (  # a request walks along them: the busiest come first
    runs.router,
    logs.router,
    runner.router,
    jobs.router,
    packages.router,
    uploads.router,
    clusters.router,
    groups.router,
    resources.router,
    usage.router,
    credentials.router,
    volumes.router,
    access.router,
    health.router,
    dashboard.router,
)


def create_app(services: Services) -> FastAPI:
    app = FastAPIOffline(  # FastAPI, with the files of its page below /docs from here and not from elsewhere
        title="Muster",
        description="A Ray-native cluster manager.",
        version=version("muster"),
        redirect_slashes=False,
        redoc_url=None,
        static_url="/docs/assets",
        swagger_ui_parameters={"validatorUrl": None},
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        responses={"default": {"model": ProblemOut, "description": "Why not."}},
        exception_handlers={
            MusterError: answer_muster_error,
            HTTPException: answer_http_exception,
            RequestValidationError: answer_invalid_request,
            Replay: answer_replay,
        },
    )
    app.state.services = services
    app.add_middleware(Edge)
    app.mount("/ray", ray_endpoint(services))  # one look says whether a request goes there
    for router in ROUTERS:
        app.include_router(router)
    _describe_the_rest(app)
    return app


def _describe_the_rest(app: FastAPI) -> None:
    """The token, and the media type of errors: FastAPI's own way would cost each request a dependency."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        schema = plain()
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        problem = {"$ref": "#/components/schemas/ProblemOut"}
        for operation in (one for path in schema["paths"].values() for one in path.values()):
            operation["responses"]["default"]["content"] = {MEDIA_TYPE: {"schema": problem}}
        return schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way
