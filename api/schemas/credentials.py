"""Credentials: `data` goes in and never comes out (api.md §7)."""

from typing import Annotated

from pydantic import BeforeValidator, SecretStr
from pydantic_core import PydanticCustomError

from api.schemas.base import In, Lax, Name, Resource
from runtime_envs.credentials import Credential, CredentialType, NewCredential


def _text(value: object) -> object:
    """What is none is not told back, as it would be elsewhere."""
    if not isinstance(value, str):
        raise PydanticCustomError("INVALID_TYPE", "not a string", {"expected": "string"})
    return value


class CredentialPatch(In):
    data: dict[str, Annotated[SecretStr, BeforeValidator(_text)]]

    def secrets(self) -> dict[str, str]:
        return {key: value.get_secret_value() for key, value in self.data.items()}


class CredentialCreate(CredentialPatch):
    name: Name
    type: Lax[CredentialType]

    def spec(self) -> NewCredential:
        return NewCredential(name=self.name, type=self.type, data=self.secrets())


class CredentialOut(Resource):
    name: str
    type: CredentialType

    @classmethod
    def of(cls, credential: Credential) -> "CredentialOut":
        return cls.model_validate(credential, from_attributes=True)
