"""A bucket of S3, or of what speaks like it, through boto3."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from runtime_envs.packages.base import Blob
from runtime_envs.packages.bucket import (
    Answer,
    BucketAddress,
    BucketError,
    BucketKeys,
    OpenObject,
    Patience,
    Pin,
    Trouble,
    conditions,
    error_for,
    numbered,
    opened_object,
)

_NO_REGION = "us-east-1"
_CONNECTIONS = 32


class S3Bucket:
    def __init__(self, address: BucketAddress, keys: BucketKeys | None, patience: Patience) -> None:
        """Without keys boto3 looks for some where it always does: its variables, its files, the machine's role."""
        self._bucket = address.bucket
        given = keys or BucketKeys(key_id="", secret_key="")
        session = Session(given.key_id or None, given.secret_key or None, given.token)
        region = address.region or _NO_REGION
        self._client: Any = session.client(
            "s3", region_name=region, endpoint_url=address.endpoint, config=_config(address, patience)
        )

    def open(self, key: str, start: int, end: int | None, pin: Pin | None) -> OpenObject | None:
        ask = conditions(start, end, pin)
        try:
            with _failures():
                got = self._client.get_object(Bucket=self._bucket, Key=key, **ask)
        except BucketError as error:
            if error.is_past_end:
                return None
            raise
        return _opened(got)

    def put(self, key: str, data: bytes) -> None:
        with _failures():
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def begin(self, key: str) -> str:
        with _failures():
            upload: str = self._client.create_multipart_upload(Bucket=self._bucket, Key=key)["UploadId"]
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        with _failures():
            answer = self._client.upload_part(
                Bucket=self._bucket, Key=key, UploadId=upload, PartNumber=number, Body=data
            )
        etag: str = answer["ETag"]
        return etag

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None:
        with _failures():
            self._client.complete_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": numbered(etags)}
            )

    def abort(self, key: str, upload: str) -> None:
        with _failures():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)

    def delete(self, key: str) -> None:
        with _failures():
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def listed(self, prefix: str, after: str, limit: int) -> tuple[list[Blob], bool]:
        with _failures():
            page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, StartAfter=after, MaxKeys=limit)
        found = [
            Blob(key=one["Key"], size_bytes=one["Size"], modified_at=one["LastModified"])
            for one in page.get("Contents", ())
        ]
        return found, page["IsTruncated"]


def _config(address: BucketAddress, patience: Patience) -> Config:
    host = urlsplit(address.endpoint or "").hostname or ""
    return Config(
        signature_version="s3v4",
        connect_timeout=patience.connect_s,
        read_timeout=patience.silence_s,
        retries={"mode": "standard", "total_max_attempts": patience.tries},
        max_pool_connections=_CONNECTIONS,
        proxies={},  # as everything else here: not through what the environment names
        request_checksum_calculation="when_required",  # COS and others know no other checksums
        response_checksum_validation="when_required",
        s3={"addressing_style": "virtual" if host.endswith(".myqcloud.com") else "auto"},
    )


def _opened(got: Mapping[str, Any]) -> OpenObject:
    version = got.get("VersionId")
    told = Answer(
        etag=got.get("ETag"),
        version=None if version == "null" else version,
        content_length=got.get("ContentLength"),
        content_range=got.get("ContentRange"),
    )
    return opened_object(got["Body"], told, _failures)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        raise error_for(status, error.response.get("Error", {}).get("Code", "")) from error
    except (BotoCoreError, HTTPError, OSError) as error:
        raise BucketError(Trouble.FAILED, type(error).__name__, passing=True) from error
