"""A client of the tus protocol as small as can be."""

import base64

import httpx

TUS = {"Tus-Resumable": "1.0.0"}
PIECE = {"Content-Type": "application/offset+octet-stream"}


def announcement(size_bytes: int, **metadata: str) -> dict[str, str]:
    pairs = (f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in metadata.items())
    return {**TUS, "Upload-Length": str(size_bytes), "Upload-Metadata": ",".join(pairs)}


async def announce(client: httpx.AsyncClient, size_bytes: int, **metadata: str) -> str:
    """The path of the new upload, below that of the client."""
    answer = await client.post("/uploads", headers=announcement(size_bytes, **{"filename": "job.zip"} | metadata))
    assert answer.status_code == 201, answer.text
    assert answer.headers["tus-resumable"] == "1.0.0"
    return answer.headers["location"].removeprefix("/api/v1")


async def send(client: httpx.AsyncClient, path: str, offset: int, data: bytes, **headers: str) -> httpx.Response:
    return await client.patch(path, content=data, headers={**TUS, **PIECE, "Upload-Offset": str(offset)} | headers)


async def offset_of(client: httpx.AsyncClient, path: str) -> int:
    answer = await client.head(path, headers=TUS)
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    return int(answer.headers["upload-offset"])
