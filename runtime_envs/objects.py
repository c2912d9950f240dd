"""Packages from object storage (R48): fetched once by Muster, pinned by the first answer, checked like an upload.

Where it may fetch from is a list, not a guess (requirements §4.3): the clouds' own addresses, made from a region's
name, and endpoints the operator has named. Nodes never see the bucket, nor its keys.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernel.actor import Actor, Role
from kernel.errors import Conflict, InvalidInput, Problem, TooLarge, Unavailable, problem, raise_problems
from runtime_envs.credentials import Credentials, CredentialType
from runtime_envs.model import Incoming, Package, PackageLimits
from runtime_envs.packages.bucket import (
    BUCKET_NAMES,
    REGION,
    Bucket,
    BucketAddress,
    BucketError,
    BucketKeys,
    BucketType,
    ObjectReader,
    Threads,
    Trouble,
    opened,
)
from runtime_envs.service import PackageService

OpenBucket = Callable[[BucketAddress, BucketKeys | None], Bucket]

FETCH_LIMIT_S = 1800
_THREADS = 8
_MAX_KEY_BYTES = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectSource:
    address: BucketAddress
    key: str
    credential: str

    def record(self, reader: ObjectReader) -> Mapping[str, Any]:
        """What is kept of it, with the state that was fetched."""
        return {
            "type": self.address.type.value,
            "bucket": self.address.bucket,
            "key": self.key,
            "region": self.address.region,
            "endpoint": self.address.endpoint,
            "credential": self.credential,
            "etag": reader.pin.etag.strip('"'),
            "version": reader.pin.version,
        }


class ObjectPackages:
    def __init__(
        self,
        packages: PackageService,
        credentials: Credentials,
        limits: PackageLimits,
        open_bucket: OpenBucket,
        endpoints: frozenset[str],
    ) -> None:
        """`endpoints`: what an operator allows besides the clouds' own."""
        self._packages = packages
        self._credentials = credentials
        self._limits = limits
        self._open_bucket = open_bucket
        self._endpoints = endpoints
        self._threads = Threads(_THREADS)

    async def fetch(self, source: ObjectSource, actor: Actor, *, dry_run: bool = False) -> tuple[Package, bool]:
        """The package, and whether it is new."""
        actor.need(Role.SUBMITTER)
        raise_problems(check_source(source, self._endpoints))
        keys = await self._keys(source)
        try:
            with _told(source):
                async with asyncio.timeout(FETCH_LIMIT_S):
                    return await self._fetch(source, keys, actor, dry_run=dry_run)
        except TimeoutError as error:
            raise Unavailable("OBJECT_STORE_FAILED", reason=f"not done in {FETCH_LIMIT_S} s") from error

    async def _fetch(
        self, source: ObjectSource, keys: BucketKeys, actor: Actor, *, dry_run: bool
    ) -> tuple[Package, bool]:
        bucket = await self._threads.run(self._open_bucket, source.address, keys)
        async with opened(bucket, self._threads, source.key) as reader:
            if reader is None:
                raise InvalidInput("PACKAGE_NOT_ZIP", pointer="/source/key", reason="content")
            limit_bytes = self._limits.max_object_bytes
            if reader.size_bytes > limit_bytes:
                raise TooLarge("OBJECT_TOO_LARGE", pointer="/source/key", limit_bytes=limit_bytes)
            incoming = Incoming(
                chunks=reader.chunks(),
                file_name=source.key,
                source=source.record(reader),
                limit_bytes=limit_bytes,
                archive=self._limits.object_archive,
                pointer="/source/key",
            )
            return await self._packages.take(incoming, actor, dry_run=dry_run)

    async def _keys(self, source: ObjectSource) -> BucketKeys:
        kind = CredentialType(source.address.type.value)
        data = await self._credentials.data(source.credential, kind)
        if data is None:
            raise InvalidInput(
                "REFERENCE_NOT_FOUND", pointer="/source/credential", kind=f"{kind} credential", ref=source.credential
            )
        return BucketKeys.of(source.address.type, data)


def check_source(source: ObjectSource, endpoints: frozenset[str]) -> list[Problem]:
    """Nothing of it may reach an address or a path but as what it says it is."""
    address, found = source.address, []
    if not BUCKET_NAMES[address.type].fullmatch(address.bucket):
        shape = "name-appid" if address.type is BucketType.COS else "a-z 0-9 - ."
        found.append(problem("INVALID_VALUE", "/source/bucket", allowed=shape))
    if address.region is None and address.type is BucketType.COS:
        found.append(problem("FIELD_REQUIRED", "/source/region", field="region"))
    if address.region is not None and not REGION.fullmatch(address.region):
        found.append(problem("INVALID_VALUE", "/source/region", allowed="a-z 0-9 -"))
    if address.endpoint is not None and address.endpoint not in endpoints:
        found.append(problem("OBJECT_ENDPOINT_NOT_ALLOWED", "/source/endpoint", endpoint=address.endpoint[:200]))
    if not _is_key(source.key):
        found.append(problem("INVALID_VALUE", "/source/key", allowed="folder/name.zip"))
    return found


def _is_key(key: str) -> bool:
    parts = key.split("/")
    return len(key.encode()) <= _MAX_KEY_BYTES and key.isprintable() and not {"", ".", ".."} & set(parts)


@contextmanager
def _told(source: ObjectSource) -> Iterator[None]:
    """A bucket's troubles at the field that can mend them."""
    bucket, key = source.address.bucket, source.key
    try:
        yield
    except BucketError as error:
        reason = error.reason
        match error.trouble:
            case Trouble.NO_OBJECT:
                raise InvalidInput("OBJECT_NOT_FOUND", pointer="/source/key", bucket=bucket, key=key) from error
            case Trouble.NO_BUCKET:
                raise InvalidInput("BUCKET_NOT_FOUND", pointer="/source/bucket", bucket=bucket) from error
            case Trouble.DENIED:
                raise InvalidInput(
                    "OBJECT_ACCESS_DENIED", pointer="/source/credential", bucket=bucket, key=key, reason=reason
                ) from error
            case Trouble.CHANGED:
                raise Conflict("OBJECT_CHANGED", pointer="/source/key", bucket=bucket, key=key) from error
            case Trouble.FAILED:
                raise Unavailable("OBJECT_STORE_FAILED", reason=reason) from error
