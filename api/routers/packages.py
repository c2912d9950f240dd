"""`/packages` (api.md §4)."""

from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from api.deps import Call, Changing, Creating, Paging, Parting, Reading
from api.edge import json_body, v1_router
from api.errors import is_json
from api.schemas.base import PageOut, page_out
from api.schemas.packages import EntryOut, PackageFetch, PackageOut, SourceIn
from api.upload import uploaded_file
from runtime_envs.model import Package

router = v1_router("packages")

_BODIES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["source"],
                    "properties": {"source": SourceIn.model_json_schema()},
                }
            },
        },
    }
}


@router.post("/packages", status_code=201, response_model=PackageOut, openapi_extra=_BODIES)
async def create_package(request: Request, call: Creating) -> Response:
    """From a form with a file, or from object storage. 201, or 200 with the package these bytes already are."""
    if is_json(request.headers.get("content-type", "")):
        return await _fetch(request, call)
    file = await uploaded_file(request)
    service = call.services.packages
    package, is_new = await service.upload(file.chunks, file.name, call.actor, dry_run=call.dry_run)
    return await _answer(call, package, is_new=is_new, content=package.sha256.encode())


async def _fetch(request: Request, call: Creating) -> Response:
    await call.replay()
    body = await json_body(request, PackageFetch)
    package, is_new = await call.services.object_packages.fetch(body.spec(), call.actor, dry_run=call.dry_run)
    return await _answer(call, package, is_new=is_new)


async def _answer(call: Call, package: Package, *, is_new: bool, content: bytes | None = None) -> Response:
    """`content` stands for the body that was sent, where it is read as it comes."""
    out = PackageOut.of(package, call.language)
    async with call.write(content):
        return call.created(out, f"/packages/{package.id}") if is_new else call.answer(out)


@router.get("/packages")
async def list_packages(
    call: Reading,
    page: Paging,
    created_by: str | None = None,
    file_name: str | None = None,
    sha256: str | None = None,
) -> PageOut[PackageOut]:
    filters = {"created_by": created_by, "file_name": file_name, "sha256": sha256}
    found = await call.services.packages.list(filters, page)
    return page_out(found, lambda package: PackageOut.of(package, call.language))


@router.get("/packages/{package_id}")
async def get_package(package_id: str, call: Reading) -> PackageOut:
    return PackageOut.of(await call.services.packages.get(package_id), call.language)


@router.get("/packages/{package_id}/content", response_class=StreamingResponse)
async def get_content(package_id: str, call: Reading) -> StreamingResponse:
    package = await call.services.packages.get(package_id)
    headers = {
        "Content-Length": str(package.size_bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(package.file_name, safe='')}",
        "ETag": f'"{package.sha256}"',
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(call.services.packages.content(package), headers=headers, media_type="application/zip")


@router.get("/packages/{package_id}/entries")
async def list_entries(package_id: str, call: Reading, part: Parting) -> PageOut[EntryOut]:
    entries = await call.services.packages.entries(package_id)
    return PageOut(**part.of([EntryOut.of(entry) for entry in entries]))


@router.delete("/packages/{package_id}", status_code=204)
async def delete_package(package_id: str, call: Changing) -> None:
    await call.services.packages.delete(package_id, call.actor, dry_run=call.dry_run)
