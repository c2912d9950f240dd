"""What every kind of resource can do: list, get, create, edit, delete."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from urllib.parse import quote

from api.client import Json
from api.client.errors import ApiError
from api.client.http import Answer, Http


class Resource:
    path: ClassVar[str]

    def __init__(self, http: Http) -> None:
        self._http = http

    def page(self, **query: Any) -> Json:
        """One page: `limit`, `cursor`, `sort` and the filters of the kind; what is None is not asked for."""
        return self._http.get(self.path, **query)

    def get(self, ref: str) -> Json:
        return self.read(ref).body

    def read(self, ref: str) -> Answer:
        """Like `get`, with the ETag that a conditional change needs."""
        return self._http.call("GET", self.at(ref))

    def create(self, body: Json, *, dry_run: bool = False) -> Json:
        return self._http.post(self.path, body, dry_run=dry_run or None)

    def edit(self, ref: str, changes: Json, *, etag: str | None = None, dry_run: bool = False) -> Json:
        params = {"dry_run": dry_run or None}
        return self._http.call("PATCH", self.at(ref), body=changes, params=params, etag=etag).body

    def delete(self, ref: str, *, force: bool = False) -> Json:
        """Empty when it is gone; what is left of it when something must be torn down first."""
        return self._http.call("DELETE", self.at(ref), body={"force": True} if force else None).body

    def at(self, ref: str, tail: str = "") -> str:
        """The path of one resource by id or name, or of something below it. Never that of another route."""
        if not ref or "/" in ref:
            raise ApiError(code="NOT_FOUND", status=404, detail=f"nothing can be named {ref!r}")
        name = quote(ref, safe="") if ref.strip(".") else ref.replace(".", "%2E")  # dots alone would climb
        return f"{self.path}/{name}{tail}"


class WithQueue(Resource):
    """Runs wait for it in a queue of its own."""

    def queue(self, ref: str, **query: Any) -> Json:
        return self._http.get(self.at(ref, "/queue"), **query)


def all_items(fetch: Callable[..., Json], **query: Any) -> Iterator[Json]:
    """The items of all pages from `cursor` on, a page in memory at a time."""
    while True:
        page = fetch(**query)
        yield from page["items"]
        if not page.get("next_cursor"):
            return
        query["cursor"] = page["next_cursor"]
