"""Refusals in the one form Ray's client shows: it prints the body of every answer but 200, so that is plain words.

403 is no such answer: the client takes it for a missing token and sends its user to look for one.
"""

from collections.abc import Iterator

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import from_outside
from api.texts import Language, language_of, say
from kernel.errors import Denied, InvalidInput, MusterError, NotFound, Problem, Unauthenticated, ValidationFailed

log = structlog.get_logger()

MAX_DRAINED_BYTES = 2**30


class RayRefusal(Exception):
    """A refusal in Ray's own words, which programs look for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def no_such_job(client_id: str) -> RayRefusal:
    return RayRefusal(404, f"Job {client_id} does not exist")


def id_is_taken(client_id: str) -> RayRefusal:
    words = "already exists. Please use a different submission_id."
    return RayRefusal(500, f"Job with submission_id {client_id} {words}")


def not_over_yet(client_id: str, status: str) -> RayRefusal:
    words = f"Attempted to delete job '{client_id}', but it is in a non-terminal state {status}."
    return RayRefusal(500, f"{words} Stop it first: ray job stop {client_id}")


class PlainErrors:
    """Answers for everything raised below it, HTTP and WebSocket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {name: value for name, value in scope.items() if name != "starlette.exception_handlers"}
        body = _Body(receive)
        started = False

        async def note_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] in {"http.response.start", "websocket.accept"}
            await send(message)

        try:
            await self._app(scope, body.receive, note_start)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            response = _response(HTTPConnection(scope), error)
            if started:  # too late for an answer: returning now cuts the connection
                return
            await body.drain()
            await response(scope, receive, send)


class _Body:
    """Ray's client reads no answer before it has sent everything, so a refusal waits for the rest of the body."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._may_have_more = True

    async def receive(self) -> Message:
        message = await self._receive()
        self._may_have_more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def drain(self) -> None:
        drained_bytes = 0
        while self._may_have_more and drained_bytes < MAX_DRAINED_BYTES:
            drained_bytes += len((await self.receive()).get("body", b""))


def _response(connection: HTTPConnection, error: Exception) -> PlainTextResponse:
    if isinstance(error, RayRefusal):
        return PlainTextResponse(error.text, error.status)
    if isinstance(error, HTTPException):
        if error.status_code != NotFound.status:
            return PlainTextResponse(f"{error.detail}: {connection.url.path}", error.status_code, error.headers)
        error = NotFound("RAY_ADDRESS_UNKNOWN", path=connection.url.path)
    known = error if isinstance(error, MusterError) else from_outside(error)
    if known is None:
        log.error("ray_request_failed", path=connection.url.path, exc_info=error)
        known = MusterError("INTERNAL_ERROR", request_id=connection.scope.get("state", {}).get("request_id"))
    text = "\n".join(_lines(known, language_of(connection.headers.get("accept-language"))))
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(known, Unauthenticated) else None
    status = 400 if isinstance(known, InvalidInput | Denied) else known.status
    return PlainTextResponse(text, status, headers)


def _lines(error: MusterError, language: Language) -> Iterator[str]:
    """A line for each problem: where, what, and what to do."""
    one = Problem(code=error.code, pointer=error.pointer, params=error.params)
    for problem in error.problems if isinstance(error, ValidationFailed) else [one]:
        words = say(problem.code, problem.params, language)
        where = f" ({problem.pointer})" if problem.pointer else ""
        yield " ".join(filter(None, [f"{problem.code}{where}:", words.detail, words.advice]))
