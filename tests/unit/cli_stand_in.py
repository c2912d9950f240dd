"""A small HTTP server that speaks the shapes of api.md, for tests of the client and the command line."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from click.testing import CliRunner, Result

from api.cli.main import main

Json = dict[str, Any]
TOKEN = "secret-token"


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    raw_path: str
    query: dict[str, str]
    """Of what is given several times the last."""
    pairs: list[tuple[str, str]]
    headers: dict[str, str]
    body: Any
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Reply:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


class Drop(Exception):
    """Raised by an answer: the connection breaks, after `sent` raw bytes of a chunked answer."""

    def __init__(self, sent: bytes = b"") -> None:
        super().__init__()
        self.sent = sent


Answer = Callable[[Request], Reply]


def problem(status: int, code: str, **more: Any) -> Reply:
    body = {
        "type": "about:blank",
        "title": code.title(),
        "status": status,
        "code": code,
        "detail": f"about {code}",
        **more,
    }
    return Reply(status=status, body=body, headers={"Content-Type": "application/problem+json"})


class StandIn:
    """Answers by method and path below /api/v1; keeps what was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: dict[tuple[str, str], Answer] = {}
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                stand_in._handle(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - names of the base class

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def on(self, method: str, path: str, answer: Answer | Reply | Json) -> None:
        fixed = Reply(body=answer) if isinstance(answer, dict) else answer
        self._answers[method, path] = (lambda _request: fixed) if isinstance(fixed, Reply) else fixed

    def asked(self, method: str, path: str) -> list[Request]:
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        path = url.path.removeprefix("/api/v1")
        pairs = parse_qsl(url.query)
        body, size_bytes = self._body(handler)
        request = Request(
            method=handler.command,
            path=unquote(path),
            raw_path=path,
            query=dict(pairs),
            pairs=pairs,
            headers={name.lower(): value for name, value in handler.headers.items()},
            body=body,
            size_bytes=size_bytes,
        )
        self.requests.append(request)
        answer = self._answers.get((handler.command, request.path), _not_found)
        try:
            _send(handler, answer(request))
        except Drop as drop:
            _send_start(handler, drop.sent)

    @staticmethod
    def _body(handler: BaseHTTPRequestHandler) -> tuple[Any, int]:
        left = int(handler.headers.get("Content-Length") or 0)
        if left > 2**20:
            size_bytes = left
            while left:
                left -= len(handler.rfile.read(min(left, 2**16)))
            return None, size_bytes
        content = handler.rfile.read(left)
        is_json = handler.headers.get("Content-Type") == "application/json"
        return (json.loads(content) if is_json else content), len(content)


@contextmanager
def a_stand_in() -> Iterator[StandIn]:
    server = StandIn()
    try:
        yield server
    finally:
        server.close()


class Cli:
    """Runs `muster` in this process, in a home of its own."""

    def __init__(self, server: StandIn, home: Path) -> None:
        self.server = server
        self.home = home
        self.env: dict[str, str | None] = {name: None for name in os.environ if name.startswith("MUSTER_")}
        self.env |= {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "MUSTER_ADDRESS": server.address,
            "MUSTER_TOKEN": TOKEN,
            "LANG": "C.UTF-8",
            "LC_ALL": None,
            "LC_MESSAGES": None,
            "NO_COLOR": None,
            "TMPDIR": str(home),
        }

    def __call__(self, *args: str, stdin: str | None = None, **env: str | None) -> Result:
        return CliRunner().invoke(main, args, input=stdin, env=self.env | env)


def sse(name: str, data: Json) -> bytes:
    """One event as a chunk of a chunked answer."""
    return chunk(f"event: {name}\nid: {data.get('next_offset', 0)}\ndata: {json.dumps(data)}\n\n".encode())


def chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _not_found(_request: Request) -> Reply:
    return problem(404, "NOT_FOUND")


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    content = reply.raw if reply.raw is not None else b"" if reply.body is None else json.dumps(reply.body).encode()
    handler.send_response(reply.status)
    for name, value in {
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        **reply.headers,
    }.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def _send_start(handler: BaseHTTPRequestHandler, sent: bytes) -> None:
    handler.close_connection = True
    if not sent:
        return
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(sent)


def an_editor(folder: Path, expression: str) -> str:
    """The command of one that makes of the `text` it is given what `expression` says, and touches nothing else."""
    script = folder / "editor.py"
    script.write_text(
        "import pathlib, sys, os\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "text = file.read_text()\n"
        f"changed = {expression}\n"
        "if changed != text:\n"
        "    file.write_text(changed)\n"
        "    os.utime(file, (0, 0))\n"
    )
    return f"{sys.executable} {script}"
