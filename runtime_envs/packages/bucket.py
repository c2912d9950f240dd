"""What S3 and COS have in common: the little of a bucket Muster needs, and how an object is read without surprises."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import ParamSpec, Protocol, Self, TypeVar

from runtime_envs.packages.base import Blob
from runtime_envs.packages.spool import to_its_end

Params = ParamSpec("Params")
Result = TypeVar("Result")

_READ_BYTES = 1024 * 1024
_RESUMES = 4
"""How often in a row reading is taken up again without a byte having come."""
_RESUME_AFTER_S = 0.2
_DENIED = {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"}


class BucketType(StrEnum):
    S3 = "s3"
    COS = "cos"


BUCKET_NAMES = {
    BucketType.S3: re.compile(r"[a-z0-9](?:[a-z0-9-]|\.(?!\.)){1,61}[a-z0-9]"),
    BucketType.COS: re.compile(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?-[0-9]{4,20}"),
}
REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketAddress:
    type: BucketType
    bucket: str
    region: str | None = None
    endpoint: str | None = None
    """Another than the cloud's own, `https://host:port`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketKeys:
    key_id: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, kind: BucketType, data: Mapping[str, str]) -> Self:
        """From the data of a credential of this type."""
        if kind is BucketType.COS:
            return cls(key_id=data["secret_id"], secret_key=data["secret_key"], token=data.get("token"))
        return cls(key_id=data["access_key_id"], secret_key=data["secret_access_key"], token=data.get("session_token"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    connect_s: float = 5
    silence_s: float = 30
    tries: int = 3


class Trouble(StrEnum):
    NO_OBJECT = "no_object"
    NO_BUCKET = "no_bucket"
    DENIED = "denied"
    CHANGED = "changed"
    """It is not the object any more that was found first."""
    FAILED = "failed"
    """Any other answer, none at all, or one that broke off."""


class BucketError(Exception):
    """`reason` is the store's own code, or what befell the connection: fit to be shown."""

    def __init__(self, trouble: Trouble, reason: str, *, passing: bool = False) -> None:
        super().__init__(trouble, reason)
        self.trouble = trouble
        self.reason = reason
        self.passing = passing

    @property
    def is_past_end(self) -> bool:
        """The range that was asked for begins behind the object."""
        return self.reason in {"InvalidRange", "HTTP 416"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """One state of an object."""

    etag: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenObject:
    pin: Pin
    size_bytes: int
    """Of the whole object."""
    read: Callable[[int], bytes]
    """At most so many bytes; none at the end. Raises `BucketError`."""
    close: Callable[[], None]


class Stream(Protocol):
    """What both SDKs answer an object's bytes with."""

    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the headers say of a stream; None: they do not say it."""

    etag: str | None
    version: str | None
    content_length: str | int | None
    content_range: str | None


class Bucket(Protocol):
    """One bucket through its SDK. Every call blocks, in bounded time, and raises `BucketError`."""

    def open(self, key: str, start: int, end: int | None, pin: Pin | None) -> OpenObject | None:
        """None: the object ends before `start`. Raises `CHANGED` when it is not as pinned."""
        ...

    def put(self, key: str, data: bytes) -> None: ...

    def begin(self, key: str) -> str:
        """An upload in parts, seen by nobody before it is completed."""
        ...

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """The part's ETag. Numbers count from 1."""
        ...

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None: ...

    def abort(self, key: str, upload: str) -> None: ...

    def delete(self, key: str) -> None:
        """Also when there is none."""
        ...

    def listed(self, prefix: str, after: str, limit: int) -> tuple[list[Blob], bool]:
        """Those behind the key `after`, in order, and whether there are more."""
        ...


class Threads:
    """Of their own: a store that hangs must not hold up what else waits for a thread."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="bucket")

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        call = partial(function, *args, **kwargs)
        return await to_its_end(asyncio.get_running_loop().run_in_executor(self._pool, call))


class ObjectReader:
    """An object from the first answer on: where the connection breaks, reading is taken up again at that byte."""

    def __init__(self, bucket: Bucket, threads: Threads, key: str, first: OpenObject) -> None:
        self._bucket = bucket
        self._threads = threads
        self._key = key
        self._open: OpenObject | None = first
        self.pin = first.pin
        self.size_bytes = first.size_bytes

    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        end = self.size_bytes if end is None else min(end, self.size_bytes)
        failures = 0
        while start < end:
            try:
                chunk = await self._next(start, end)
            except BucketError as error:
                await self.close()
                failures += 1
                if not error.passing or failures > _RESUMES:
                    raise
                await asyncio.sleep(_RESUME_AFTER_S * 2**failures)
                continue
            failures = 0
            start += len(chunk)
            yield chunk

    async def close(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            await self._threads.run(opened.close)

    async def _next(self, start: int, end: int) -> bytes:
        if self._open is None:
            self._open = await self._threads.run(_open_again, self._bucket, self._key, (start, end), self.pin)
        chunk = await self._threads.run(self._open.read, min(_READ_BYTES, end - start))
        if not chunk:
            raise BucketError(Trouble.FAILED, "connection cut", passing=True)
        return chunk


@asynccontextmanager
async def opened(
    bucket: Bucket, threads: Threads, key: str, start: int = 0, end: int | None = None
) -> AsyncIterator[ObjectReader | None]:
    """None: the object ends before `start`."""
    first = await threads.run(bucket.open, key, start, end, None)
    if first is None:
        yield None
        return
    reader = ObjectReader(bucket, threads, key, first)
    try:
        yield reader
    finally:
        with suppress(BucketError):
            await reader.close()


def error_for(status: int, code: str) -> BucketError:
    """What an answer means that is no success."""
    reason = code if code and not code.isdecimal() else f"HTTP {status}"
    if code == "NoSuchBucket":
        return BucketError(Trouble.NO_BUCKET, reason)
    if code in _DENIED or status in {401, 403}:
        return BucketError(Trouble.DENIED, reason)
    if status == 404:
        return BucketError(Trouble.NO_OBJECT, reason)
    if status == 412:
        return BucketError(Trouble.CHANGED, reason)
    return BucketError(Trouble.FAILED, reason, passing=status >= 500 or status == 429)


def conditions(start: int, end: int | None, pin: Pin | None) -> dict[str, str]:
    """Of a GET, by the names that both SDKs give them. The whole has no range: an empty object has none to ask for."""
    asked = {} if start == 0 and end is None else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
    if pin is not None:
        asked |= {"VersionId": pin.version} if pin.version else {"IfMatch": pin.etag}
    return asked


def opened_object(stream: Stream, told: Answer, failures: Callable[[], AbstractContextManager[None]]) -> OpenObject:
    """`failures` makes `BucketError` of what the SDK raises."""
    if told.etag is None or told.content_length is None:
        stream.close()
        raise BucketError(Trouble.FAILED, "incomplete answer", passing=True)

    def read(size: int) -> bytes:
        with failures():
            return stream.read(size)

    whole = told.content_range.rpartition("/")[2] if told.content_range else told.content_length
    return OpenObject(
        pin=Pin(etag=told.etag, version=told.version), size_bytes=int(whole), read=read, close=stream.close
    )


def numbered(etags: Sequence[str]) -> list[dict[str, int | str]]:
    """The parts of an upload, as both SDKs take them."""
    return [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]


def _open_again(bucket: Bucket, key: str, span: tuple[int, int], pin: Pin) -> OpenObject:
    try:
        again = bucket.open(key, *span, pin)
    except BucketError as error:
        if error.trouble is Trouble.NO_OBJECT:
            raise BucketError(Trouble.CHANGED, error.reason) from error
        raise
    if again is None or again.pin.etag != pin.etag:
        raise BucketError(Trouble.CHANGED, "another ETag")
    return again
