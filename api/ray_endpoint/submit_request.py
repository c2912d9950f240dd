"""The body of `POST /api/jobs/`, as Ray's client sends it."""

import json
import re
import secrets
import string
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from api.edge import StrictRequest
from kernel.errors import Malformed, Problem, pointer_to, problem, raise_problems

_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")
_ID_LETTERS = sorted(set(string.ascii_letters + string.digits) - set("IloO0"))
_AMOUNT = Field(ge=0, le=2**50)
RESERVED_METADATA = ("job_submission_id", "job_name")
"""Ray links a driver with its job by these."""
PROTOCOL = "gcs"
"""Of packages that the client sends before it submits."""


class SubmitRequest(BaseModel):
    """Strict, since a mistaken type that is let through shows only when the run fails on its cluster."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    entrypoint: str
    submission_id: str | None = None
    job_id: str | None = None
    """Its name before Ray 2.0."""
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, str] = Field(default_factory=dict)
    entrypoint_num_cpus: Annotated[float, _AMOUNT] = 0
    entrypoint_num_gpus: Annotated[float, _AMOUNT] = 0
    entrypoint_memory: Annotated[int, _AMOUNT] = 0
    entrypoint_resources: dict[str, float] = Field(default_factory=dict)
    entrypoint_label_selector: dict[str, str] = Field(default_factory=dict)

    @property
    def client_id(self) -> str | None:
        return self.submission_id or self.job_id

    @property
    def uploads(self) -> list[str]:
        """Names of the packages the client says it has sent before."""
        modules = self.runtime_env.get("py_modules")
        uris = [self.runtime_env.get("working_dir"), *(modules if isinstance(modules, list) else [])]
        prefix = f"{PROTOCOL}://"
        return [uri.removeprefix(prefix) for uri in uris if isinstance(uri, str) and uri.startswith(prefix)]


async def read_submit_request(request: Request) -> SubmitRequest:
    try:
        body = await StrictRequest(request.scope, request.receive).json()
    except json.JSONDecodeError as error:
        raise Malformed("MALFORMED_JSON", reason=str(error)) from error
    if not isinstance(body, dict):
        raise Malformed("BODY_REQUIRED")
    given = {name: value for name, value in body.items() if value is not None}
    try:
        asked = SubmitRequest.model_validate(given)
    except ValidationError as error:
        raise_problems(_problem(one) for one in error.errors())
        raise
    raise_problems(_broken_rules(asked))
    return asked


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def new_id() -> str:
    """As Ray's own server makes them."""
    return "raysubmit_" + "".join(secrets.choice(_ID_LETTERS) for _ in range(16))


def _broken_rules(asked: SubmitRequest) -> Iterator[Problem]:
    if asked.client_id is not None and not is_id(asked.client_id):
        yield problem("RAY_SUBMISSION_ID_INVALID", "/submission_id", submission_id=asked.client_id[:100])
    for name in RESERVED_METADATA:
        if name in asked.metadata:
            yield problem("RAY_METADATA_RESERVED", pointer_to("metadata", name), name=name)


def _problem(error: Mapping[str, Any]) -> Problem:
    pointer = pointer_to(*error["loc"])
    if error["type"] == "missing":
        return problem("FIELD_REQUIRED", pointer)
    if error["type"] == "extra_forbidden":
        return problem("UNKNOWN_FIELD", pointer, field=str(error["loc"][-1]))
    if bounds := error.get("ctx"):
        return problem("INVALID_VALUE", pointer, allowed=[f"{name} {bound}" for name, bound in bounds.items()])
    return problem("INVALID_TYPE", pointer, expected=error["type"].partition("_")[0])
