"""What was used."""

from typing import Any

from api.client.resource import Resource


class Usage(Resource):
    path = "/usage"

    def csv(self, **query: Any) -> str:
        return self._http.text(self.path, "text/csv", **query)
