"""As much of a Ray dashboard as a look asks for, on a port of its own; it asks for a token if it was given one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

ANSWERS = {"/api/gcs_healthz": "success", "/api/jobs/": "[]"}
PUBLIC = ("/api/gcs_healthz",)


@asynccontextmanager
async def a_dashboard(
    token: str | None = None, *, ray_version: str = "2.60.0", jobs: int = 200, cookie: str = "", port: int = 0
) -> AsyncIterator[str]:
    """Its address. `jobs` is the status its list of jobs has; who once brought the token gets in by the `cookie`."""
    answers = ANSWERS | {"/api/version": json.dumps({"version": "4", "ray_version": ray_version})}

    def answer(path: str, head: str) -> str:
        known = token is None or path in PUBLIC or f"bearer {token}" in head or (cookie and f"cookie: {cookie}" in head)
        status = (jobs if path == "/api/jobs/" else 200) if known else 401
        extra = f"Set-Cookie: {cookie}\r\n" if cookie and known else ""
        return f"HTTP/1.1 {status} X\r\n{extra}Connection: close\r\n\r\n{answers.get(path, '{}')}"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.write(answer(head.split()[1], head.lower()).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
