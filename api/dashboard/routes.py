"""`/clusters/{ref}/dashboard/…`: the Ray dashboard of a cluster, for whoever may look at the cluster."""

from dataclasses import replace
from datetime import timedelta

from fastapi import Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from api.auth import bearer, digest
from api.dashboard import passes
from api.dashboard.allowed import role_for
from api.dashboard.forward import Asked, forward
from api.dashboard.headers import ON_EVERY_ANSWER, refuse_foreign_pages
from api.deps import Reading, services_of
from api.edge import API, v1_router
from api.schemas.dashboard import DashboardTicket
from api.wiring import Services
from cluster_groups.model.cluster import Cluster, ClusterState
from kernel.actor import Actor, Role
from kernel.errors import Denied, Unauthenticated, Unavailable
from kernel.events import audit

router = v1_router("clusters")

COOKIE = "muster_dashboard"
_TICKET = "ticket"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_SIGN_IN = "api/authentication_mode"


@router.post(
    "/clusters/{ref}/dashboard-tickets",
    status_code=201,
    description="A link for a browser, which sends no token by itself. It opens a session that may only look, at this "
    "cluster alone and at the host this is sent to. Never answered twice, whatever `Idempotency-Key` says.",
)
async def make_dashboard_ticket(ref: str, call: Reading) -> DashboardTicket:
    now = call.services.clock.now()
    token_digest = digest(bearer(call.request.headers.get("authorization")))
    async with call.write() as session:
        cluster = await call.services.clusters.get(session, ref)
        _need_running(cluster)
        granted = passes.Pass(token_digest=token_digest, cluster_id=cluster.id, host=_host(call.request))
        ticket = await passes.make_ticket(session, granted, now)
        audit(session, "open_dashboard", ("cluster", cluster.name), at=now, actor=call.actor.user)
    path = f"{API}/clusters/{cluster.name}/dashboard/?{_TICKET}={ticket}"
    return DashboardTicket(path=path, expires_at=now + timedelta(seconds=passes.TICKET_S))


@router.get("/clusters/{ref}/dashboard", include_in_schema=False)
async def find_dashboard(ref: str) -> Response:
    """Addresses in the page are relative to a folder."""
    del ref
    return RedirectResponse("dashboard/")


@router.api_route("/clusters/{ref}/dashboard/{path:path}", methods=_METHODS, include_in_schema=False)
async def use_dashboard(ref: str, path: str, request: Request) -> Response:
    refuse_foreign_pages(request.headers)
    services = services_of(request)
    if not path and _TICKET in request.query_params:
        return await _open_session(services, ref, request)
    actor, only_cluster = await _visitor(services, request)
    query = request.scope["query_string"].decode("ascii", "replace")
    role = role_for(request.method, path, query)
    if role is None:
        raise Denied("DASHBOARD_NOT_ALLOWED", method=request.method, path=path)
    actor.need(role)
    async with services.database.read() as session:
        cluster = await services.clusters.get(session, ref)
    _need_same(only_cluster, cluster)
    _need_running(cluster)
    if path == _SIGN_IN:  # or the page would ask people for the cluster's token
        return JSONResponse({"authentication_mode": "disabled"}, headers=dict(ON_EVERY_ANSWER))
    endpoint = await services.fleet.endpoint(cluster.id)
    if endpoint is None:
        raise Unavailable("DASHBOARD_UNREACHABLE", cluster=cluster.name, reason="its address is not known")
    by_operator = role is not Role.VIEWER
    if by_operator:
        await _audit(services, actor, cluster, f"{request.method} {path}")
    asked = Asked(cluster=cluster.name, endpoint=endpoint, path=path, query=query, by_operator=by_operator)
    return await forward(services.dashboards, request, asked)


async def _open_session(services: Services, ref: str, request: Request) -> Response:
    """Raising takes back what was used up."""
    async with services.database.write() as session:
        ticket, now = request.query_params[_TICKET], services.clock.now()
        granted, secret = await passes.open_session(session, ticket, _host(request), now)
        cluster = await services.clusters.get(session, ref)
        _need_same(granted.cluster_id, cluster)
    response = RedirectResponse("./", 303, headers=dict(ON_EVERY_ANSWER))
    response.set_cookie(
        COOKIE,
        secret,
        max_age=passes.SESSION_S,
        path=None,  # this folder, as the browser sees it
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def _visitor(services: Services, request: Request) -> tuple[Actor, str | None]:
    """Who asks, and the id of the one cluster he may see, if it is one: a session in a browser is good for no more."""
    authorization = request.headers.get("authorization")
    if authorization is not None:
        return await services.tokens.authenticate(authorization), None
    secret = request.cookies.get(COOKIE)
    if not secret:
        raise Unauthenticated("DASHBOARD_LINK_NEEDED")
    async with services.database.read() as session:
        granted = await passes.find_session(session, secret, _host(request), services.clock.now())
    actor = await services.tokens.actor_of_digest(granted.token_digest)
    return replace(actor, role=Role.VIEWER), granted.cluster_id


def _host(request: Request) -> str:
    return request.headers.get("host", "")


def _need_same(only_cluster: str | None, cluster: Cluster) -> None:
    if only_cluster not in {None, cluster.id}:
        raise Unauthenticated("DASHBOARD_LINK_NEEDED")


def _need_running(cluster: Cluster) -> None:
    if cluster.state is not ClusterState.RUNNING:
        raise Unavailable("DASHBOARD_NOT_RUNNING", cluster=cluster.name, state=str(cluster.state))


async def _audit(services: Services, actor: Actor, cluster: Cluster, call: str) -> None:
    """Before it is done: what became of it the dashboard does not always tell."""
    at = services.clock.now()
    async with services.database.write() as session:
        audit(session, "use_dashboard", ("cluster", cluster.name), at=at, actor=actor.user, call=call)
