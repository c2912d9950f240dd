"""Resource packages (bought pools) and the resource groups cut from them."""

from api.client import Json
from api.client.resource import Resource, WithQueue


class ResourcePackages(Resource):
    path = "/resource-packages"


class ResourceGroups(WithQueue):
    path = "/resource-groups"

    def usage(self, ref: str) -> Json:
        return self._http.get(self.at(ref, "/usage"))
