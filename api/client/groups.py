"""Cluster groups and their policies."""

from api.client import Json
from api.client.http import Answer
from api.client.resource import Resource


class Groups(Resource):
    path = "/cluster-groups"

    def policy(self, ref: str) -> Answer:
        return self._http.call("GET", self.at(ref, "/policy"))

    def set_policy(self, ref: str, policy: Json, *, etag: str | None) -> Json:
        return self._http.call("PUT", self.at(ref, "/policy"), body=policy, etag=etag).body
