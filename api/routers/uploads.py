"""`/uploads`: resumable uploads of packages by the tus protocol, 1.0.0 (docs/decisions/0016)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from email.utils import format_datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from starlette.requests import ClientDisconnect

from api.deps import Creating, Paging, Reading
from api.edge import API, StrictRoute
from api.errors import problem_response
from api.schemas.base import PageOut, page_out
from api.schemas.uploads import UploadOut, bytes_of, new_upload
from kernel.errors import MusterError, WrongMediaType
from runtime_envs.model import Upload

TUS = "1.0.0"
PIECE = "application/offset+octet-stream"
SILENCE_S = 60
"""A sender that is silent for longer is taken for gone: what it has sent counts."""
_CHANGES = {"POST", "PATCH", "DELETE"}


class TusVersionWrong(MusterError):
    status = 412


class TusRoute(StrictRoute):
    """Says which version it speaks in every answer, also where the answer is no."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                _check_version(request)
                answer = await handler(request)
            except MusterError as error:
                answer = problem_response(request, error)
                answer.headers["Tus-Version"] = TUS
            answer.headers["Tus-Resumable"] = TUS
            return answer

        return handle


router = APIRouter(prefix=f"{API}/uploads", tags=["uploads"], route_class=TusRoute)
Offset = Annotated[str | None, Header(description="Where this piece begins: what has come so far.")]
Length = Annotated[str | None, Header(description="Bytes of the whole file.")]
Metadata = Annotated[str | None, Header(description="`filename` and `sha256`, each with its value in base64.")]


@router.options("", status_code=204, include_in_schema=False)
@router.options("/{upload_id}", status_code=204, include_in_schema=False)
async def describe(call: Reading) -> Response:
    return Response(
        status_code=204,
        headers={
            "Tus-Version": TUS,
            "Tus-Extension": "creation,expiration,termination",
            "Tus-Max-Size": str(call.services.uploads.most_bytes),
        },
    )


@router.post("", status_code=201, response_model=UploadOut)
async def create_upload(call: Creating, upload_length: Length = None, upload_metadata: Metadata = None) -> Response:
    """Announce a file. Refused at once for what would be refused at its end: its name, its size, who sends it."""
    new = new_upload(upload_length, upload_metadata)
    async with call.write() as session:
        upload = await call.services.uploads.create(session, new, call.actor)
        answer = call.created(UploadOut.of(upload), f"/uploads/{upload.id}")
        answer.headers.update(_headers(upload))
    return answer


@router.get("")
async def list_uploads(call: Reading, page: Paging, sha256: str | None = None) -> PageOut[UploadOut]:
    """One's own that are on their way."""
    return page_out(await call.services.uploads.page(call.actor, sha256, page), UploadOut.of)


@router.get("/{upload_id}", response_model=UploadOut)
async def get_upload(upload_id: str, call: Reading) -> Response:
    """Also as HEAD: how far it is stands in the headers."""
    upload = await call.services.uploads.get(upload_id, call.actor)
    answer = call.answer(UploadOut.of(upload))
    answer.headers.update(_headers(upload))
    return answer


@router.patch(
    "/{upload_id}", status_code=204, openapi_extra={"requestBody": {"required": True, "content": {PIECE: {}}}}
)
async def append(upload_id: str, call: Reading, upload_offset: Offset = None) -> Response:
    """The next piece. With the last one the file becomes a package, which `Content-Location` names, or is refused."""
    media_type = call.request.headers.get("content-type", "none")
    if media_type != PIECE:
        raise WrongMediaType("UNSUPPORTED_MEDIA_TYPE", content_type=media_type, expected=PIECE)
    offset_bytes = bytes_of(upload_offset, "Upload-Offset")
    upload = await call.services.uploads.append(upload_id, offset_bytes, _until_cut(call.request), call.actor)
    return Response(status_code=204, headers=_headers(upload))


@router.delete("/{upload_id}", status_code=204)
async def delete_upload(upload_id: str, call: Reading) -> None:
    """Give it up."""
    await call.services.uploads.delete(upload_id, call.actor)


async def _until_cut(request: Request) -> AsyncIterator[bytes]:
    """A cut is an end like any other: what came before it counts."""
    chunks = request.stream()
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
    except (ClientDisconnect, TimeoutError):
        return


def _headers(upload: Upload) -> dict[str, str]:
    headers = {
        "Upload-Offset": str(upload.offset_bytes),
        "Upload-Length": str(upload.size_bytes),
        "Upload-Expires": format_datetime(upload.expires_at, usegmt=True),
        "Cache-Control": "no-store",
    }
    if upload.package is not None:
        headers["Content-Location"] = f"{API}/packages/{upload.package}"
    return headers


def _check_version(request: Request) -> None:
    """Whoever only looks, as people with a browser do, needs not speak it."""
    spoken = request.headers.get("tus-resumable")
    if spoken != TUS and (spoken is not None or request.method in _CHANGES):
        raise TusVersionWrong("TUS_VERSION_WRONG", expected=TUS)
