"""Jobs: saved definitions."""

from api.client import Json
from api.client.resource import Resource


class Jobs(Resource):
    path = "/jobs"

    def run(self, ref: str, *, priority: int | None = None, max_wait_s: int | None = None) -> Json:
        wishes = {"priority": priority, "max_wait_s": max_wait_s}
        return self._http.post(
            self.at(ref, "/runs"), {name: value for name, value in wishes.items() if value is not None}
        )

    def copy(self, ref: str) -> Json:
        """A body for `create` with everything the job has; nothing is stored."""
        return self._http.post(self.at(ref, "/copy"))
