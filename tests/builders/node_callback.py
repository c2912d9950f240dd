"""Muster's end of what nodes ask for, without Muster: credentials of volumes, packages."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from runtime_envs.node_plugin.terms import bearer


@dataclass(slots=True)
class NodeCallback:
    """`token` is the cluster's; who does not show what is made of it gets 401."""

    url: str
    token: str = ""
    credentials: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    packages: dict[str, Path] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def node_callback() -> Iterator[NodeCallback]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, callback)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        callback = NodeCallback(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield callback
        server.shutdown()


def _answer(request: BaseHTTPRequestHandler, callback: NodeCallback) -> None:
    url = urlsplit(request.path)
    parts = url.path.split("/")
    attempt = parse_qs(url.query)["attempt"][0] if url.query else parts[4]
    callback.asked.append(request.path)
    if request.headers["Authorization"] != f"Bearer {bearer(callback.token, attempt)}":
        request.send_error(401)
        return
    request.send_response(200)
    if url.query:
        package = callback.packages[parts[-1].removesuffix(".zip")]
        request.send_header("Content-Length", str(package.stat().st_size))
        request.end_headers()
        with package.open("rb") as file:
            while block := file.read(2**20):
                request.wfile.write(block)
    else:
        request.end_headers()
        request.wfile.write(json.dumps({"credentials": callback.credentials}).encode())
