"""Why something waits or ended, as data: a code, its numbers, and whose move it is. Words are made at the edge."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Owner(StrEnum):
    USER = "user"
    QUOTA = "quota"
    PLATFORM = "platform"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    code: str
    owner: Owner = Owner.PLATFORM
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, Any]:
        """For records of what was decided or has happened, in JSON's own types."""
        return {"code": self.code, "params": self.params}
