"""Packages (api.md §4)."""

from typing import Any, Literal

from pydantic import BaseModel

from api.schemas.base import In, Name, Resource, WarningOut, warnings_out
from api.texts import Language
from runtime_envs.archive import ArchiveEntry
from runtime_envs.model import Package
from runtime_envs.objects import ObjectSource
from runtime_envs.packages.bucket import BucketAddress, BucketType


class SourceIn(In):
    """An object in COS or S3; `region` may be left out with S3, `endpoint` names a server that is no cloud's own."""

    type: Literal["cos", "s3"]
    bucket: str
    key: str
    region: str | None = None
    endpoint: str | None = None
    credential: Name


class PackageFetch(In):
    source: SourceIn

    def spec(self) -> ObjectSource:
        source = self.source
        endpoint = source.endpoint.rstrip("/") if source.endpoint else None
        address = BucketAddress(
            type=BucketType(source.type), bucket=source.bucket, region=source.region, endpoint=endpoint
        )
        return ObjectSource(address=address, key=source.key, credential=source.credential)


class PackageOut(Resource):
    sha256: str
    size_bytes: int
    entries: int
    file_name: str
    source: dict[str, Any]
    warnings: list[WarningOut]

    @classmethod
    def of(cls, package: Package, language: Language) -> "PackageOut":
        return cls(
            id=package.id,
            created_at=package.created_at,
            created_by=package.created_by,
            sha256=package.sha256,
            size_bytes=package.size_bytes,
            entries=package.entry_count,
            file_name=package.file_name,
            source=dict(package.source),
            warnings=warnings_out(package.warnings, language),
        )


class EntryOut(BaseModel):
    name: str
    size_bytes: int
    compressed_bytes: int

    @classmethod
    def of(cls, entry: ArchiveEntry) -> "EntryOut":
        return cls(name=entry.name, size_bytes=entry.size_bytes, compressed_bytes=entry.compressed_bytes)
