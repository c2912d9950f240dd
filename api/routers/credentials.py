"""`/credentials`."""

from fastapi import Response

from api.deps import Changing, Creating, Paging, Reading
from api.edge import v1_router
from api.schemas.base import PageOut, page_out
from api.schemas.credentials import CredentialCreate, CredentialOut, CredentialPatch

router = v1_router("credentials")


@router.post("/credentials", status_code=201, response_model=CredentialOut)
async def create_credential(body: CredentialCreate, call: Creating) -> Response:
    async with call.write() as session:
        credential = await call.services.credentials.create(session, call.actor, body.spec())
        return call.created(CredentialOut.of(credential), f"/credentials/{credential.id}")


@router.get("/credentials")
async def list_credentials(call: Reading, page: Paging) -> PageOut[CredentialOut]:
    async with call.read() as session:
        return page_out(await call.services.credentials.page(session, page), CredentialOut.of)


@router.get("/credentials/{ref}")
async def get_credential(ref: str, call: Reading) -> CredentialOut:
    async with call.read() as session:
        return CredentialOut.of(await call.services.credentials.get(session, ref))


@router.patch("/credentials/{ref}")
async def replace_secrets(ref: str, body: CredentialPatch, call: Changing) -> CredentialOut:
    """Other secrets under the same name and of the same type."""
    async with call.write() as session:
        return CredentialOut.of(await call.services.credentials.replace(session, call.actor, ref, body.secrets()))


@router.delete("/credentials/{ref}", status_code=204)
async def delete_credential(ref: str, call: Changing) -> None:
    async with call.write() as session:
        await call.services.credentials.delete(session, call.actor, ref)
