"""Tokens, who one is, and the audit."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from api.auth import TokenSpec
from api.schemas.base import In, Lax, Name, Resource, Time, WarningOut
from api.tables import TokenRow
from kernel.actor import EVERY, Actor, Role
from kernel.events import AuditRow


class TokenCreate(In):
    name: Name
    user: str = Field(min_length=1, max_length=100)
    role: Lax[Role]
    resource_packages: list[str] = Field(default=[EVERY], min_length=1)
    expires_at: Time | None = None

    def spec(self) -> TokenSpec:
        return TokenSpec(
            name=self.name,
            user=self.user,
            role=self.role,
            resource_packages=tuple(self.resource_packages),
            expires_at=self.expires_at,
        )


class TokenOut(Resource):
    name: str
    user: str
    role: Role
    resource_packages: list[str]
    expires_at: datetime | None

    @classmethod
    def of(cls, row: TokenRow) -> "TokenOut":
        return cls.model_validate(row, from_attributes=True)


class TokenCreated(TokenOut):
    secret: str | None
    """Shown in the first answer only, not in its repetitions."""
    warnings: list[WarningOut] = []


class WhoAmI(BaseModel):
    user: str
    role: Role
    resource_packages: list[str]
    token: str

    @classmethod
    def of(cls, actor: Actor) -> "WhoAmI":
        return cls(user=actor.user, role=actor.role, resource_packages=list(actor.resource_packages), token=actor.token)


class AuditOut(BaseModel):
    id: str
    at: datetime
    actor: str
    action: str
    target_type: str
    target: str
    detail: dict[str, Any]

    @classmethod
    def of(cls, row: AuditRow) -> "AuditOut":
        return cls(
            id=f"evt_{row.seq:026d}",
            at=row.at,
            actor=row.actor,
            action=row.action,
            target_type=row.target_type,
            target=row.target,
            detail=row.detail,
        )
