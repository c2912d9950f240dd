"""Cluster groups and their policies."""

from typing import Any

from api.client import Json
from api.client.http import Answer
from api.client.resource import WithQueue


class Groups(WithQueue):
    path = "/cluster-groups"

    def policy(self, ref: str, revision: int | None = None) -> Answer:
        """The present one unless a revision is given."""
        tail = "" if revision is None else f"/revisions/{revision}"
        return self._http.call("GET", self.at(ref, f"/policy{tail}"))

    def set_policy(self, ref: str, policy: Json, *, etag: str | None, dry_run: bool = False) -> Json:
        params = {"dry_run": dry_run or None}
        return self._http.call("PUT", self.at(ref, "/policy"), body=policy, params=params, etag=etag).body

    def revisions(self, ref: str, **query: Any) -> Json:
        return self._http.get(self.at(ref, "/policy/revisions"), **query)

    def restore(self, ref: str, revision: int, *, comment: str | None, etag: str | None, dry_run: bool = False) -> Json:
        path = self.at(ref, f"/policy/revisions/{revision}/restore")
        body = {} if comment is None else {"comment": comment}
        return self._http.call("POST", path, body=body, params={"dry_run": dry_run or None}, etag=etag).body

    def simulate(self, ref: str, supposed: Json) -> Json:
        return self._http.post(self.at(ref, "/simulate"), supposed)
