"""What all bodies share: strict input, a page, a warning, and the words of a code."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, TypeAdapter
from pydantic.types import Strict
from pydantic_core import PydanticCustomError

from api.errors import problem_item
from api.texts import Language
from kernel.errors import Problem
from kernel.paging import Page

Value = TypeVar("Value")
Row = TypeVar("Row")
Out = TypeVar("Out", bound=BaseModel)


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", value):
        raise PydanticCustomError("INVALID_NAME", "not a name", {"name": value})
    return value


Name = Annotated[str, AfterValidator(_name)]
"""Of everything but jobs (api.md §1)."""
Lax = Annotated[Value, Strict(strict=False)]
"""For what JSON has no type of its own: enums, times, tuples."""
Time = Annotated[AwareDatetime, Strict(strict=False)]


class In(BaseModel):
    """A body. "5" is no number, unknown fields are refused, and so are the numbers that are none."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Resource(BaseModel):
    id: str
    created_at: datetime
    created_by: str


class PageOut(BaseModel, Generic[Out]):
    items: list[Out]
    next_cursor: str | None = None


class ProblemItem(BaseModel):
    pointer: str | None = None
    code: str
    detail: str
    advice: str | None = None
    params: dict[str, Any] = {}


class WarningOut(ProblemItem):
    """Beside a result: done, but perhaps not what was meant."""


class ProblemOut(BaseModel):
    """Every error's body (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemItem]
    advice: str | None = None
    params: dict[str, Any]
    request_id: str


def given(body: In, config: type[Any]) -> dict[str, Any]:
    """What was sent, as the values of the same-named fields of the dataclass `config`; the rest takes its defaults."""
    sent = body.model_dump(exclude_unset=True)
    adapters = {name: _adapter(config, name) for name in sent}  # type: ignore[arg-type]  # classes are hashable
    return {name: adapters[name].validate_python(value) for name, value in sent.items()}


def page_out(page: Page[Row], of: Callable[[Row], Out]) -> PageOut[Out]:
    return PageOut(items=[of(row) for row in page.items], next_cursor=page.next_cursor)


def warnings_out(problems: Iterable[Problem], language: Language) -> list[WarningOut]:
    return [WarningOut(**problem_item(one, language)) for one in problems]


@cache
def _adapter(config: type[Any], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(config)[name])
