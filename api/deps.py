"""What handlers are given: one object per request that knows who asks, how, and the unit of work.

    @router.post("/clusters", status_code=201, response_model=ClusterOut)
    async def create_cluster(body: ClusterCreate, call: Creating) -> Response:
        async with call.write() as session:
            cluster = await call.services.clusters.create(session, call.actor, body.spec())
            return call.created(ClusterOut.of(cluster), f"/clusters/{cluster.id}", revision=cluster.revision)

`write()` is the whole request in one transaction: it commits when the block ends, gives a repeated `Idempotency-Key`
its first answer without entering the block, and with `?dry_run=true` rolls everything back after the last check.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from api import idempotency
from api.edge import API, StrictRoute
from api.texts import Language, language_of
from api.wiring import Services
from kernel.actor import Actor
from kernel.errors import InvalidInput, pointer_to
from kernel.paging import DEFAULT_LIMIT, MAX_LIMIT, PageRequest
from kernel.together import Unit

_NO_REVISION = 0
"""Revisions count from 1: a tag of no resource's matches none."""


class Call:
    def __init__(self, request: Request, services: Services, actor: Actor) -> None:
        self.request = request
        self.services = services
        self.actor = actor
        self.dry_run = False
        self.if_match: str | None = None
        self.idempotency_key: str | None = None
        self._answer = Response()
        self._kept: BaseModel | None = None

    @property
    def language(self) -> Language:
        return language_of(self.request.headers.get("accept-language"))

    @property
    def expected_revision(self) -> int | None:
        """What `If-Match` names; None where the client takes any."""
        tag = (self.if_match or "*").strip().removeprefix("W/")
        if tag == "*":
            return None
        return int(tag[1:-1]) if tag[:1] == tag[-1:] == '"' and tag[1:-1].isdecimal() else _NO_REVISION

    def read(self) -> AbstractAsyncContextManager[AsyncSession]:
        return self.services.database.read()

    @asynccontextmanager
    async def write(self, body: bytes | None = None) -> AsyncIterator[AsyncSession]:
        """`body` is what tells this request from others where its own body was a stream."""
        key = await self._key(body)
        with suppress(_NothingStored):
            async with self.services.database.write() as session:
                if key:
                    await idempotency.reserve(session, key, self.services.clock.now())
                yield session
                await session.flush()
                if self.dry_run:
                    raise _NothingStored
                if key:
                    await idempotency.keep(session, key, self._answer, self._kept)

    async def replay(self) -> None:
        """Give a repetition its first answer here, before what need not be done again; `write()` would do it later."""
        if key := await self._key(None):
            async with self.read() as session:
                await idempotency.look_up(session, key)

    async def write_together(self, unit: Unit[Response]) -> Response:
        """Like `write()`, sharing the transaction of what else comes now. `unit` may have to be done a second time."""
        if self.dry_run:
            async with self.write() as session:
                return await unit(session)
        key = await self._key(None)

        async def whole(session: AsyncSession) -> Response:
            if key:
                await idempotency.reserve(session, key, self.services.clock.now())
            answer = await unit(session)
            if key:
                await idempotency.keep(session, key, self._answer, self._kept)
            return answer

        return await self.services.database.write_together(whole)

    def created(
        self, out: BaseModel, location: str, *, revision: int | None = None, kept: BaseModel | None = None
    ) -> Response:
        """201 with `Location`. `kept` is what a repetition is answered with, where that must not be all of `out`."""
        if self.dry_run:
            return self.answer(out)
        return self.answer(out, 201, revision=revision, kept=kept, headers={"Location": API + location})

    def answer(
        self,
        out: BaseModel,
        status: int = 200,
        *,
        revision: int | None = None,
        kept: BaseModel | None = None,
        headers: dict[str, str] | None = None,
    ) -> Response:
        content = out.model_dump_json(by_alias=True)
        response = Response(content, status_code=status, headers=headers, media_type="application/json")
        if revision is not None:
            response.headers["ETag"] = f'"{revision}"'
        self._answer, self._kept = response, kept or out
        return response

    async def _key(self, body: bytes | None) -> idempotency.Key | None:
        if self.idempotency_key is None or self.dry_run:
            return None
        body = await self.request.body() if body is None else body
        return idempotency.Key.of(self.request, self.actor.user, self.idempotency_key, body)


def _refuse_unknown_parameters(request: Request) -> None:
    """A misspelt filter would list everything, a misspelt `dry_run` store it."""
    route = request.scope["route"]
    if not request.url.query or not isinstance(route, StrictRoute) or route.query_names is None:
        return
    for name in request.query_params:
        if name not in route.query_names:
            known = sorted(route.query_names)
            raise InvalidInput("UNKNOWN_PARAMETER", pointer=pointer_to(name), parameter=name, known=known)


class _NothingStored(Exception):
    """Ends a dry run, which is no error."""


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def reading(request: Request) -> Call:
    """GET: any role may look."""
    services = services_of(request)
    actor = await services.tokens.authenticate(request.headers.get("authorization"))
    _refuse_unknown_parameters(request)
    return Call(request, services, actor)


async def changing(
    request: Request,
    dry_run: Annotated[bool, Query(description="Validate everything, store nothing.")] = False,  # noqa: FBT002 - a query parameter
    if_match: Annotated[str | None, Header(description="The revision this change was made for.")] = None,
) -> Call:
    """PATCH, PUT, DELETE."""
    call = await reading(request)
    call.dry_run, call.if_match = dry_run, if_match
    return call


async def creating(
    request: Request,
    dry_run: Annotated[bool, Query(description="Validate everything, store nothing.")] = False,  # noqa: FBT002 - a query parameter
    idempotency_key: Annotated[str | None, Header(description="The same key gets the first answer again.")] = None,
) -> Call:
    """POST."""
    call = await reading(request)
    call.dry_run, call.idempotency_key = dry_run, idempotency_key
    return call


async def replacing(
    call: Annotated[Call, Depends(creating)],
    if_match: Annotated[str | None, Header(description="The revision this change was made for.")] = None,
) -> Call:
    """POST that makes a new state of something from the one that is named."""
    call.if_match = if_match
    return call


async def page_request(
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
    sort: Annotated[str, Query(description="A field; `-` before it for descending.")] = "-created_at",
) -> PageRequest:
    return PageRequest(limit=limit, cursor=cursor, sort=sort)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Of a list that is short enough to be read whole; without a limit all of it."""

    start: int = 0
    limit: int | None = None

    def of(self, items: Sequence[Any]) -> dict[str, Any]:
        end = len(items) if self.limit is None else self.start + self.limit
        return {"items": list(items[self.start : end]), "next_cursor": str(end) if end < len(items) else None}


async def part_request(
    limit: Annotated[int | None, Query(ge=1, le=MAX_LIMIT, description="All without it.")] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the part before.", max_length=18)] = None,
) -> Part:
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal()):
        raise InvalidInput("INVALID_CURSOR", pointer="/cursor")
    return Part(start=int(cursor or 0), limit=limit)


Reading = Annotated[Call, Depends(reading)]
Changing = Annotated[Call, Depends(changing)]
Creating = Annotated[Call, Depends(creating)]
Replacing = Annotated[Call, Depends(replacing)]
Paging = Annotated[PageRequest, Depends(page_request)]
Parting = Annotated[Part, Depends(part_request)]
