"""The paths of Ray's Jobs API below each kind of address (`/ray`, `/ray/clusters/<name>`, …)."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from api.ray_endpoint import logs, submissions
from api.ray_endpoint.answers import job_details
from api.ray_endpoint.browsers import is_browser, refuse_browsers, without_secrets
from api.ray_endpoint.errors import PlainErrors
from api.ray_endpoint.submit_request import PROTOCOL, read_submit_request
from api.ray_endpoint.targets import Target, TargetKind
from api.texts import language_of
from api.wiring import Services
from kernel.actor import Actor, Role
from kernel.errors import Malformed, Unauthenticated
from rayjobs.run_report import RunReport, report_many, report_one

API_VERSION = "4"
"""Of Ray's Jobs API; 4 is the one with DELETE."""

Handler = Callable[[Request, Actor], Awaitable[Response]]


def ray_endpoint(services: Services) -> ASGIApp:
    """To be mounted at `/ray`."""
    default = Target.parse(services.settings.ray_default_target)
    routes = _Jobs(services, default).routes("")
    for kind in (TargetKind.CLUSTER, TargetKind.GROUP, TargetKind.JOB):
        routes += _Jobs(services, kind).routes(f"/{kind}/{{target}}")
    routes.append(_Jobs(services, default).version("/{anywhere:path}"))
    return PlainErrors(Router(routes, redirect_slashes=False))


class _Jobs:
    """Serves one target, or all of one kind by the name in the path."""

    def __init__(self, services: Services, target: Target | TargetKind) -> None:
        self._services = services
        self._target = target

    def routes(self, prefix: str) -> list[BaseRoute]:
        package = f"{prefix}/api/packages/{{protocol}}/{{package}}"
        jobs = f"{prefix}/api/jobs/"
        return [
            self.version(prefix),
            self._route(package, GET=self._find_package, PUT=self._put_package),
            self._route(jobs, GET=self._list, POST=self._submit),
            self._route(f"{jobs}{{job}}", GET=self._get, DELETE=self._delete),
            self._route(f"{jobs}{{job}}/stop", POST=self._stop),
            self._route(f"{jobs}{{job}}/logs", GET=self._logs),
            WebSocketRoute(f"{jobs}{{job}}/logs/tail", self._tail),
        ]

    def version(self, prefix: str) -> Route:
        """Asked first by the client, which takes a 404 here for a Ray that is too old and hides the rest."""
        return self._route(f"{prefix}/api/version", GET=self._version)

    def _route(self, path: str, **handlers: Handler) -> Route:
        async def handle(request: Request) -> Response:
            refuse_browsers(request.method, request.headers)
            return await handlers[request.method](request, await self._actor(request))

        return Route(path, handle, methods=list(handlers))

    async def _version(self, _request: Request, _actor: Actor) -> Response:
        ray = {"version": API_VERSION, "ray_version": version("ray"), "ray_commit": "muster", "session_name": "muster"}
        return JSONResponse(ray)

    async def _find_package(self, request: Request, actor: Actor) -> Response:
        name = _package_name(request)
        if await self._services.ray_uploads.has(actor.user, name):
            return Response()
        return PlainTextResponse(f"Package {PROTOCOL}://{name} does not exist", 404)

    async def _put_package(self, request: Request, actor: Actor) -> Response:
        actor.need(Role.SUBMITTER)
        await self._services.ray_uploads.put(actor.user, _package_name(request), request.stream())
        return Response()

    async def _submit(self, request: Request, actor: Actor) -> Response:
        asked = await read_submit_request(request)
        client_id = await submissions.submit(self._services, actor, self._target_of(request), asked)
        return JSONResponse({"job_id": client_id, "submission_id": client_id})

    async def _list(self, request: Request, _actor: Actor) -> Response:
        async with self._services.database.read() as session:
            runs = await submissions.latest(self._services, session, self._target_of(request))
            reports = await report_many(session, runs, self._services.clock.now())
            return JSONResponse(await _details(session, reports, request))

    async def _get(self, request: Request, _actor: Actor) -> Response:
        async with self._services.database.read() as session:
            run = await submissions.find(session, self._target_of(request), _client_id(request))
            report = await report_one(session, run, self._services.clock.now())
            (details,) = await _details(session, [report], request)
            return JSONResponse(details)

    async def _delete(self, request: Request, actor: Actor) -> Response:
        await submissions.delete(self._services, actor, self._target_of(request), _client_id(request))
        return JSONResponse({"deleted": True})

    async def _stop(self, request: Request, actor: Actor) -> Response:
        stopped = await submissions.stop(self._services, actor, self._target_of(request), _client_id(request))
        return JSONResponse({"stopped": stopped})

    async def _logs(self, request: Request, _actor: Actor) -> Response:
        async with self._services.database.read() as session:
            run = await submissions.find(session, self._target_of(request), _client_id(request))
        return StreamingResponse(logs.whole_log(self._services, run.id), media_type="application/json")

    async def _tail(self, socket: WebSocket) -> None:
        await self._actor(socket)
        async with self._services.database.read() as session:
            run = await submissions.find(session, self._target_of(socket), _client_id(socket))
        await logs.tail(self._services, run.id, socket)

    async def _actor(self, connection: HTTPConnection) -> Actor:
        """By the headers that Ray's own servers look at."""
        headers = connection.headers
        try:
            return await self._services.tokens.authenticate(
                headers.get("authorization") or headers.get("x-ray-authorization")
            )
        except Unauthenticated as error:
            raise Unauthenticated("RAY_TOKEN_REQUIRED") from error

    def _target_of(self, connection: HTTPConnection) -> Target:
        if isinstance(self._target, Target):
            return self._target
        return Target(kind=self._target, name=connection.path_params["target"])


async def _details(session: AsyncSession, reports: list[RunReport], request: Request) -> list[dict[str, Any]]:
    specs = await submissions.specs_of(session, [report.row for report in reports])
    language = language_of(request.headers.get("accept-language"))
    answers = [job_details(report, specs[report.row.id], language) for report in reports]
    if is_browser(request.headers):
        return [{**one, "runtime_env": without_secrets(one["runtime_env"])} for one in answers]
    return answers


def _client_id(connection: HTTPConnection) -> str:
    return str(connection.path_params["job"])


def _package_name(request: Request) -> str:
    if request.path_params["protocol"] != PROTOCOL:
        raise Malformed("RAY_PROTOCOL_UNKNOWN", protocol=request.path_params["protocol"])
    return str(request.path_params["package"])
