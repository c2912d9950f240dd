"""Packages: immutable ZIPs, known by their content."""

from collections.abc import Iterator
from contextlib import contextmanager

from api.client import Json
from api.client.http import Upload
from api.client.resource import Resource

_FETCH_S = 1830
"""A little longer than the service tries."""


class Packages(Resource):
    path = "/packages"

    def upload(self, upload: Upload) -> Json:
        return self._http.upload(self.path, upload).body

    def fetch(self, source: Json) -> Json:
        """From object storage, by the service itself."""
        return self._http.call("POST", self.path, body={"source": source}, silence_s=_FETCH_S).body

    @contextmanager
    def content(self, package_id: str) -> Iterator[Iterator[bytes]]:
        with self._http.stream(self.at(package_id, "/content")) as chunks:
            yield chunks
