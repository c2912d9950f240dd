"""Clusters: Ray clusters that Muster knows."""

from typing import Any

from api.client import Json
from api.client.resource import WithQueue


class Clusters(WithQueue):
    path = "/clusters"

    def start(self, ref: str) -> Json:
        return self._http.post(self.at(ref, "/start"))

    def stop(self, ref: str, *, force: bool = False) -> Json:
        return self._http.post(self.at(ref, "/stop"), {"force": True} if force else None)

    def cordon(self, ref: str) -> Json:
        return self._http.post(self.at(ref, "/cordon"))

    def uncordon(self, ref: str) -> Json:
        return self._http.post(self.at(ref, "/uncordon"))

    def dashboard(self, ref: str) -> Json:
        """`path`, below the server's address, opens the dashboard in a browser once."""
        return self._http.post(self.at(ref, "/dashboard-tickets"))

    def events(self, ref: str, **query: Any) -> Json:
        return self._http.get(self.at(ref, "/events"), **query)
