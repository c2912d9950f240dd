"""What runners ask for leases, commanded by a test."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rayjobs.runner.spec import LeaseTerms

REFUSED = (409, {"code": "LEASE_REFUSED"})


class LeaseServer:
    """Grants `ttl_s`, unless `answer` says what else; `delay_s` before it does; `is_gone`: it hangs up."""

    def __init__(self) -> None:
        self.ttl_s = 2
        self.answer: tuple[int, Any] | None = None
        self.delay_s = 0.0
        self.is_gone = False
        self.asked: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def terms(self, take_within_s: float = 5) -> LeaseTerms:
        return LeaseTerms(f"{self.url}/runner/v1/attempts/run_1-a1/lease", "claim", take_within_s)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def lease_server() -> Iterator[LeaseServer]:
    server = LeaseServer()
    try:
        yield server
    finally:
        server.close()


def _handler(server: LeaseServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append({"path": self.path, "secret": self.headers["Authorization"], **body})
            time.sleep(server.delay_s)
            if server.is_gone:
                return
            status, answer = server.answer or (200, {"ttl_s": server.ttl_s})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def do_GET(self) -> None:
            self.send_response(503 if server.is_gone else 200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    return Handler
