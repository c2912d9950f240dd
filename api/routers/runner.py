"""`/runner/v1`: what rides along to the clusters calls here (api.md §11). People's tokens are no use."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from api.auth import bearer
from api.deps import services_of
from api.edge import StrictRoute
from api.schemas.base import In

router = APIRouter(prefix="/runner/v1", route_class=StrictRoute, include_in_schema=False)


class LeaseIn(In):
    claim: str = Field(max_length=100)


class LeaseOut(BaseModel):
    ttl_s: int


@router.post("/attempts/{submission_id}/lease")
async def renew_lease(submission_id: str, body: LeaseIn, request: Request) -> LeaseOut:
    """The attempt may go on for `ttl_s` from when it asked; 409 `LEASE_REFUSED`: it is to end at once."""
    secret = bearer(request.headers.get("authorization"))
    return LeaseOut(ttl_s=await services_of(request).leases.renew(submission_id, body.claim, secret))
