"""`/tokens`, `/whoami`, `/audit`."""

from fastapi import Response

from api import timeline
from api.deps import Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.access import AuditOut, TokenCreate, TokenCreated, TokenOut, WhoAmI
from api.schemas.base import PageOut, page_out, warnings_out
from kernel.actor import EVERY, Role
from kernel.errors import pointer_to, problem

router = v1_router("access")


@router.post("/tokens", status_code=201, response_model=TokenCreated)
async def create_token(body: TokenCreate, call: Creating) -> Response:
    async with call.write() as session:
        row, secret = await call.services.tokens.create(session, call.actor, body.spec())
        known = {EVERY, *await call.services.pools.package_names(session)}
        warnings = [
            problem("REFERENCE_NOT_FOUND", pointer_to("resource_packages", at), kind="resource package", ref=name)
            for at, name in enumerate(row.resource_packages)
            if name not in known
        ]
        told = warnings_out(warnings, call.language)
        token = TokenCreated(**TokenOut.of(row).model_dump(), secret=secret, warnings=told)
        return call.created(token, f"/tokens/{row.id}", kept=token.model_copy(update={"secret": None}))


@router.get("/tokens")
async def list_tokens(call: Reading, page: Paging) -> PageOut[TokenOut]:
    async with call.read() as session:
        return page_out(await call.services.tokens.list(session, call.actor, page), TokenOut.of)


@router.get("/tokens/{ref}")
async def get_token(ref: str, call: Reading) -> TokenOut:
    async with call.read() as session:
        return TokenOut.of(await call.services.tokens.get(session, call.actor, ref))


@router.delete("/tokens/{ref}", status_code=204)
async def delete_token(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.tokens.delete(session, call.actor, ref)


@router.get("/whoami")
async def whoami(call: Reading) -> WhoAmI:
    return WhoAmI.of(call.actor)


@router.get("/audit")
async def list_audit(  # noqa: PLR0917 - filters of one list
    call: Reading,
    page: Paging,
    actor: str | None = None,
    action: str | None = None,
    target_type: str | None = None,
    target: str | None = None,
) -> PageOut[AuditOut]:
    call.actor.need(Role.ADMIN)
    filters = {"actor": actor, "action": action, "target_type": target_type, "target": target}
    async with call.read() as session:
        return page_out(await timeline.list_audit(session, page, filters), AuditOut.of)
