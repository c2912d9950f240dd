"""`/runner/v1`: what rides along to the clusters calls here (api.md §11). People's tokens are no use."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from api.auth import bearer
from api.deps import services_of
from api.edge import StrictRoute
from api.schemas.base import In

router = APIRouter(prefix="/runner/v1", route_class=StrictRoute, include_in_schema=False)

AttemptId = Annotated[str, Query(max_length=100)]


class LeaseIn(In):
    claim: str = Field(max_length=100)


class LeaseOut(BaseModel):
    ttl_s: int


@router.post("/attempts/{submission_id}/lease")
async def renew_lease(submission_id: str, body: LeaseIn, request: Request) -> LeaseOut:
    """The attempt may go on for `ttl_s` from when it asked; 409 `LEASE_REFUSED`: it is to end at once."""
    return LeaseOut(ttl_s=await services_of(request).leases.renew(submission_id, body.claim, _bearer(request)))


@router.get("/attempts/{submission_id}/mount-credentials")
async def get_mount_credentials(submission_id: str, request: Request) -> JSONResponse:
    """For the nodes of the attempt's cluster: how its volumes are opened."""
    found = await services_of(request).node_needs.mount_credentials(submission_id, _bearer(request))
    keys = {
        volume: {"key_id": one.key_id, "secret_key": one.secret_key, "token": one.token}
        for volume, one in found.items()
    }
    return JSONResponse({"credentials": keys}, headers={"Cache-Control": "no-store"})


@router.get("/packages/{sha256}.zip", response_class=StreamingResponse)
async def get_package(
    sha256: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")], attempt: AttemptId, request: Request
) -> StreamingResponse:
    package, content = await services_of(request).node_needs.package(attempt, _bearer(request), sha256)
    headers = {"Content-Length": str(package.size_bytes), "Cache-Control": "no-store"}
    return StreamingResponse(content, headers=headers, media_type="application/zip")


def _bearer(request: Request) -> str:
    return bearer(request.headers.get("authorization"))
