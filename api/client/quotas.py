"""Resource packages (bought pools) and the resource groups cut from them."""

from typing import Any

from api.client import Json
from api.client.resource import Resource


class ResourcePackages(Resource):
    path = "/resource-packages"


class ResourceGroups(Resource):
    path = "/resource-groups"

    def usage(self, ref: str) -> Json:
        return self._http.get(self.at(ref, "/usage"))

    def queue(self, ref: str, **query: Any) -> Json:
        return self._http.get(self.at(ref, "/queue"), **query)
