"""Volumes: where data lies that runs mount (api.md §7)."""

from api.schemas.base import In, Lax, Name, Resource
from runtime_envs.volumes.model import NewVolume, Volume, VolumeType


class VolumeCreate(In):
    name: Name
    type: Lax[VolumeType]
    source: dict[str, str]
    credential: str | None = None

    def spec(self) -> NewVolume:
        return NewVolume(name=self.name, type=self.type, source=self.source, credential=self.credential)


class VolumeOut(Resource):
    name: str
    type: VolumeType
    source: dict[str, str]
    credential: str | None

    @classmethod
    def of(cls, volume: Volume) -> "VolumeOut":
        return cls.model_validate(volume, from_attributes=True)
