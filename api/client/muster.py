"""One Muster, with all its nouns.

muster = Muster("http://127.0.0.1:8266", token)
run = muster.jobs.run("nightly")
"""

from types import TracebackType
from typing import Self

from api.client import Json
from api.client.clusters import Clusters
from api.client.groups import Groups
from api.client.http import Http
from api.client.jobs import Jobs
from api.client.packages import Packages
from api.client.people import Audit, Credentials, Tokens
from api.client.quotas import ResourceGroups, ResourcePackages
from api.client.runs import Runs
from api.client.uploads import Uploads
from api.client.usage import Usage
from api.client.volumes import Volumes


class Muster:
    def __init__(self, address: str, token: str | None = None, *, language: str = "en") -> None:
        self._http = http = Http(address, token, language=language)
        self.jobs = Jobs(http)
        self.runs = Runs(http)
        self.packages = Packages(http)
        self.uploads = Uploads(http)
        self.clusters = Clusters(http)
        self.groups = Groups(http)
        self.resource_packages = ResourcePackages(http)
        self.resource_groups = ResourceGroups(http)
        self.volumes = Volumes(http)
        self.credentials = Credentials(http)
        self.tokens = Tokens(http)
        self.audit = Audit(http)
        self.usage = Usage(http)

    def whoami(self) -> Json:
        return self._http.get("/whoami")

    def description(self) -> Json:
        """OpenAPI's, with what each field means."""
        return self._http.get(f"{self._http.address}/openapi.json")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
