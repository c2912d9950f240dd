"""What every request passes first and last: its id, refusals that need no route, and an answer for the unexpected.

Plain ASGI, since a wrapper that buffers would break streams and cost every request.
"""

import json
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import cached_property
from itertools import count
from typing import Any, TypeVar

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import from_outside, problem_response
from kernel.errors import Malformed, MusterError, TooLarge

log = structlog.get_logger()

Body = TypeVar("Body", bound=BaseModel)

API = "/api/v1"
MAX_BODY_BYTES = 2 * 2**20
_GIVEN_ID = re.compile(rb"[\w.:-]{1,64}")


class Edge:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._process = secrets.token_hex(4)
        self._count = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            _refuse_nul(scope)
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            return
        except Exception as error:
            if started:  # too late for an answer: the cut connection tells the client
                raise
            request = Request(scope)
            await problem_response(request, _as_muster_error(error, request_id))(scope, receive, send_with_id)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
                return str(value, "ascii")
        return f"{self._process}-{next(self._count)}"


class StrictRequest(Request):
    """Bounded, and JSON as it is meant.

    Python also takes NaN, half characters no database can store, and the same key twice.
    """

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            chunks, size_bytes = [], 0
            async for chunk in self.stream():
                chunks.append(chunk)
                size_bytes += len(chunk)
                if size_bytes > MAX_BODY_BYTES:
                    raise TooLarge("BODY_TOO_LARGE", limit_bytes=MAX_BODY_BYTES)
            self._body = b"".join(chunks)
        return self._body

    async def json(self) -> Any:
        body = await self.body()
        try:
            value = json.loads(body, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_object)
        except UnicodeDecodeError as error:
            raise Malformed("MALFORMED_JSON", reason="it is not UTF-8") from error
        except RecursionError as error:
            raise Malformed("MALFORMED_JSON", reason="it is nested too deeply") from error
        if b"\\u" in body:
            _refuse_unstorable(value)
        return value


class StrictRoute(APIRoute):
    @cached_property
    def query_names(self) -> frozenset[str] | None:
        """What may be asked for behind `?`; None where the end of the address is somebody else's, and so its query."""
        if ":path}" in self.path:
            return None
        known = get_flat_params(self.dependant)
        return frozenset(one.alias for one in known if isinstance(one.field_info, Query))

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return handle


def v1_router(tag: str) -> APIRouter:
    return APIRouter(prefix=API, tags=[tag], route_class=StrictRoute)


async def json_body(request: Request, schema: type[Body]) -> Body:
    """For a route that takes bodies of several kinds; where there is one the framework does it."""
    try:
        return schema.model_validate(await request.json())
    except json.JSONDecodeError as error:
        raise Malformed("MALFORMED_JSON", reason=error.msg) from error
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from error


def _without_body(send: Send) -> Send:
    """HEAD is a GET of which only the beginning is sent; what would be a stream ends with its first piece."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})
        elif message.get("more_body"):
            raise ClientDisconnect

    return send_head


def _as_muster_error(error: Exception, request_id: str) -> MusterError:
    known = error if isinstance(error, MusterError) else from_outside(error)
    if known is None:
        log.error("request_failed", exc_info=error)
        return MusterError("INTERNAL_ERROR", request_id=request_id)
    if known is not error:
        log.warning("request_refused", code=known.code, error=str(error))
    return known


def _refuse_nul(scope: Scope) -> None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise Malformed("MALFORMED_REQUEST", reason="there is a NUL in its address")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a key that is there twice nobody can say which was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise Malformed("DUPLICATE_KEY", key=twice[:100].encode("utf-8", "replace").decode())
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Malformed("MALFORMED_JSON", reason=f"{text} is not a number a computer can hold")
    return number


def _refuse_unstorable(value: Any) -> None:
    if isinstance(value, str):
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in value):
            raise Malformed("MALFORMED_JSON", reason="a string holds a NUL or half a character")
    elif isinstance(value, list):
        for one in value:
            _refuse_unstorable(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            _refuse_unstorable(name)
            _refuse_unstorable(one)
