"""Errors at the edge: whatever is raised becomes `application/problem+json` (api.md §1) in the language asked for."""

import errno
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic_core import to_json
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.texts import Language, language_of, say
from kernel.errors import (
    InvalidInput,
    Malformed,
    MusterError,
    NotFound,
    Problem,
    Unauthenticated,
    Unavailable,
    ValidationFailed,
    WrongMediaType,
    pointer_to,
    problem,
)

MEDIA_TYPE = "application/problem+json"
JSON = "application/json"
SHOWN_LENGTH = 80


class MethodNotAllowed(MusterError):
    status = 405


async def answer_muster_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MusterError)  # noqa: S101 - it is registered for nothing else
    return problem_response(request, error)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for nothing else
    headers = dict(error.headers or {})
    if error.status_code == MethodNotAllowed.status:
        headers["Allow"] = ", ".join(_methods_at(request))
    return problem_response(request, _from_http(request, error), headers)


async def answer_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for nothing else
    return problem_response(request, _from_validation(request, error.errors()))


def problem_response(request: Request, error: MusterError, headers: Mapping[str, str] | None = None) -> Response:
    language = language_of(request.headers.get("accept-language"))
    body = problem_document(error, language, request.state.request_id)
    response = Response(to_json(body, fallback=str), status_code=error.status, media_type=MEDIA_TYPE)
    response.headers.update(headers or {})
    response.headers["Content-Language"] = language
    if isinstance(error, Unauthenticated):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def problem_document(error: MusterError, language: Language, request_id: str) -> dict[str, Any]:
    words = say(error.code, error.params, language)
    return {
        "type": f"urn:muster:error:{error.code}",
        "title": words.title,
        "status": error.status,
        "code": error.code,
        "detail": words.detail,
        "errors": [problem_item(one, language) for one in _problems(error)],
        "advice": words.advice,
        "params": error.params,
        "request_id": request_id,
    }


def problem_item(one: Problem, language: Language) -> dict[str, Any]:
    """One of several problems, or a warning."""
    words = say(one.code, one.params, language)
    return {
        "pointer": one.pointer,
        "code": one.code,
        "detail": words.detail,
        "advice": words.advice,
        "params": one.params,
    }


def from_outside(error: Exception) -> MusterError | None:
    """Our own name for a failure of what Muster stands on; None for a mistake of ours."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    text = str(cause)
    if getattr(cause, "errno", None) == errno.ENOSPC or "disk is full" in text or "No space left" in text:
        return Unavailable("DISK_FULL")
    lost = isinstance(error, ConnectionError | PoolTimeout) or getattr(error, "connection_invalidated", False)
    if lost or "unable to open database file" in text or "database is locked" in text:
        return Unavailable("DATABASE_UNREACHABLE", reason=text or type(cause).__name__)
    return None


def _problems(error: MusterError) -> list[Problem]:
    if isinstance(error, ValidationFailed):
        return error.problems
    return [Problem(code=error.code, pointer=error.pointer, params=error.params)] if error.pointer else []


def _from_http(request: Request, error: HTTPException) -> MusterError:
    if isinstance(error.__cause__, MusterError):  # raised while the framework read the body
        return error.__cause__
    path = request.url.path
    if error.status_code == NotFound.status:
        return NotFound("NOT_FOUND", kind="path", ref=path)
    if error.status_code == MethodNotAllowed.status:
        return MethodNotAllowed("METHOD_NOT_ALLOWED", method=request.method, allowed=_methods_at(request))
    return Malformed("MALFORMED_REQUEST", reason=str(error.detail))


def _methods_at(request: Request) -> list[str]:
    """Of all routes with this path; the framework names those of the first."""
    here = [one for one in iter_route_contexts(request.app.routes) if one.matches(request.scope)[0] is not Match.NONE]
    methods = {method for one in here for method in one.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def _from_validation(request: Request, errors: Iterable[Mapping[str, Any]]) -> MusterError:
    found = list(errors)
    first = found[0]
    if first["type"] == "json_invalid":
        return Malformed("MALFORMED_JSON", reason=first["ctx"]["error"])
    content_type = request.headers.get("content-type", "")
    if tuple(first["loc"]) == ("body",):
        if first["type"] == "missing":
            return InvalidInput("BODY_REQUIRED")
        if not is_json(content_type):
            return WrongMediaType("UNSUPPORTED_MEDIA_TYPE", content_type=content_type or "none", expected=JSON)
    problems = [_problem(error) for error in found]
    if len(problems) > 1:
        return ValidationFailed(problems)
    only = problems[0]
    return InvalidInput(only.code, pointer=only.pointer, **only.params)


def is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == JSON or (media_type.startswith("application/") and media_type.endswith("+json"))


def _problem(error: Mapping[str, Any]) -> Problem:
    kind, location = error["type"], error["loc"]
    pointer = pointer_to(*location[1:])
    if kind.isupper():  # a schema's own
        return problem(kind, pointer, **error.get("ctx", {}))
    if kind == "missing":
        return problem("FIELD_REQUIRED", pointer)
    if kind == "extra_forbidden":
        return problem("UNKNOWN_FIELD", pointer, field=str(location[-1]))
    expected = _TYPES.get(kind.split("_")[0])
    if expected and kind.endswith(_TYPE_ENDINGS):
        told = _in_quotes(error.get("input")) if expected == "string" else expected
        return problem("INVALID_TYPE", pointer, expected=told)
    return problem("INVALID_VALUE", pointer, allowed=_allowed(error))


_TYPE_ENDINGS = ("_aware", "_type", "_parsing", "_from_float", "_object_invalid")
_TYPES = {
    "int": "integer",
    "float": "number",
    "string": "string",
    "bool": "boolean",
    "dict": "object",
    "model": "object",
    "list": "array",
    "tuple": "array",
    "datetime": "time (RFC 3339)",
    "timezone": "time (RFC 3339)",
}
_BOUNDS = {
    "ge": "≥ {}",
    "gt": "> {}",
    "le": "≤ {}",
    "lt": "< {}",
    "min_length": "length ≥ {}",
    "max_length": "length ≤ {}",
}


def _in_quotes(value: Any) -> str:
    """A string, and where it can be told the one to write: `"4"` for 4."""
    text = json.dumps(value) if isinstance(value, int | float | dict | list) else ""
    return f"string ({json.dumps(text)})" if 0 < len(text) <= SHOWN_LENGTH else "string"


def _allowed(error: Mapping[str, Any]) -> str | list[str]:
    context = error.get("ctx", {})
    if "expected" in context:
        return re.findall(r"'([^']*)'", context["expected"]) or str(context["expected"])
    bounds = [text.format(context[name]) for name, text in _BOUNDS.items() if name in context]
    return bounds or str(context.get("pattern", error["msg"]))
