"""Credentials: `data` goes in and never comes out (api.md §7)."""

from pydantic import SecretStr

from api.schemas.base import In, Lax, Name, Resource
from runtime_envs.credentials import Credential, CredentialType, NewCredential


class CredentialCreate(In):
    name: Name
    type: Lax[CredentialType]
    data: dict[str, SecretStr]

    def spec(self) -> NewCredential:
        data = {key: value.get_secret_value() for key, value in self.data.items()}
        return NewCredential(name=self.name, type=self.type, data=data)


class CredentialOut(Resource):
    name: str
    type: CredentialType

    @classmethod
    def of(cls, credential: Credential) -> "CredentialOut":
        return cls.model_validate(credential, from_attributes=True)
