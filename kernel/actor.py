"""Who asks: a user with a role, through a token. One installation is one trust domain (api.md §1)."""

from dataclasses import dataclass
from enum import StrEnum

from kernel.errors import Denied
from kernel.events import SYSTEM


class Role(StrEnum):
    """Each may all that the ones before it may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"


_RANK = {role: rank for rank, role in enumerate(Role)}
EVERY = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    user: str
    role: Role
    resource_packages: tuple[str, ...] = (EVERY,)
    token: str = ""
    """Name of the token used."""

    def is_at_least(self, role: Role) -> bool:
        return _RANK[self.role] >= _RANK[role]

    def need(self, role: Role) -> None:
        if not self.is_at_least(role):
            raise Denied("ROLE_REQUIRED", required=str(role), role=str(self.role))

    def need_owner(self, owner: str) -> None:
        """Submitters act on what they made themselves; operators on everything."""
        self.need(Role.SUBMITTER)
        if owner != self.user and not self.is_at_least(Role.OPERATOR):
            raise Denied("NOT_YOURS", owner=owner)

    def may_use_package(self, resource_package: str) -> bool:
        return EVERY in self.resource_packages or resource_package in self.resource_packages


SYSTEM_ACTOR = Actor(user=SYSTEM, role=Role.ADMIN)
