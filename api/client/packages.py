"""Packages: immutable ZIPs, known by their content."""

from collections.abc import Iterator
from contextlib import contextmanager

from api.client import Json
from api.client.http import Upload
from api.client.resource import Resource


class Packages(Resource):
    path = "/packages"

    def upload(self, upload: Upload) -> Json:
        return self._http.upload(self.path, upload).body

    @contextmanager
    def content(self, package_id: str) -> Iterator[Iterator[bytes]]:
        with self._http.stream(self.at(package_id, "/content")) as chunks:
            yield chunks
