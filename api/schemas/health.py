"""How the service itself is."""

from pydantic import BaseModel


class CheckOut(BaseModel):
    name: str
    ok: bool
    detail: str | None = None


class HealthOut(BaseModel):
    ok: bool
    version: str
    checks: list[CheckOut]
