"""A bucket of Tencent Cloud's COS, through its SDK."""

import ipaddress
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from qcloud_cos import CosConfig, CosS3Client
from qcloud_cos.cos_exception import CosClientError, CosServiceError
from requests.adapters import HTTPAdapter
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

_CONNECTIONS = 32
_NO_CONTENT = 204


class CosBucket:
    def __init__(self, address: BucketAddress, keys: BucketKeys, patience: Patience) -> None:
        logging.getLogger("qcloud_cos").setLevel(logging.CRITICAL)  # it logs signing keys; its errors are told by us
        self._bucket = address.bucket
        config = CosConfig(
            Region=address.region,
            SecretId=keys.key_id,
            SecretKey=keys.secret_key,
            Token=keys.token,
            Timeout=(patience.connect_s, patience.silence_s),
            **_place(address.endpoint),
        )
        self._client: Any = CosS3Client(config, retry=patience.tries - 1, session=_session())

    def open(self, key: str, start: int, end: int | None, pin: Pin | None) -> OpenObject | None:
        ask = conditions(start, end, pin)
        try:
            with _failures():
                got = self._client.get_object(self._bucket, key, KeySimplifyCheck=False, **ask)
        except BucketError as error:
            if error.is_past_end:
                return None
            raise
        return _opened(got)

    def put(self, key: str, data: bytes) -> None:
        with _failures():
            self._client.put_object(self._bucket, data, key, EnableMD5=True)

    def begin(self, key: str) -> str:
        with _failures():
            upload: str = self._client.create_multipart_upload(self._bucket, key)["UploadId"]
        return upload

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        with _failures():
            etag: str = self._client.upload_part(self._bucket, key, data, number, upload, EnableMD5=True)["ETag"]
        return etag

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None:
        with _failures():
            self._client.complete_multipart_upload(self._bucket, key, upload, {"Part": numbered(etags)})

    def abort(self, key: str, upload: str) -> None:
        with _failures():
            self._client.abort_multipart_upload(self._bucket, key, upload)

    def delete(self, key: str) -> None:
        with _failures():
            self._client.delete_object(self._bucket, key)

    def listed(self, prefix: str, after: str, limit: int) -> tuple[list[Blob], bool]:
        with _failures():
            page = self._client.list_objects(self._bucket, Prefix=prefix, Marker=after, MaxKeys=limit)
        found = [
            Blob(
                key=one["Key"],
                size_bytes=int(one["Size"]),
                modified_at=datetime.fromisoformat(one["LastModified"]),
            )
            for one in page.get("Contents", ())
        ]
        return found, page["IsTruncated"] == "true"


def _place(endpoint: str | None) -> dict[str, Any]:
    """The bucket's name goes before that of a host; at a mere address it can only stand in the `Host` header."""
    if endpoint is None:
        return {}
    parts = urlsplit(endpoint)
    try:
        ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return {"Scheme": parts.scheme, "Endpoint": parts.netloc}
    return {"Scheme": parts.scheme, "IP": parts.hostname, "Port": parts.port}


def _session() -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # as everything else here: not through proxies the environment names
    session.headers["Accept-Encoding"] = "identity"
    session.hooks["response"] = [_refuse_half]
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS))
    return session


def _refuse_half(response: requests.Response, *_: Any, **__: Any) -> None:
    """The SDK would take a redirection for a success, and lose the connection of an answer cut within its head."""
    is_whole = response.status_code == _NO_CONTENT or {"Content-Length", "Transfer-Encoding"} & {*response.headers}
    if response.is_redirect or not is_whole:
        response.close()
        raise requests.ConnectionError("redirected" if response.is_redirect else "cut within its head")


def _opened(got: Mapping[str, Any]) -> OpenObject:
    headers = {name.lower(): value for name, value in got.items()}
    told = Answer(
        etag=headers.get("etag"),
        version=headers.get("x-cos-version-id"),
        content_length=headers.get("content-length"),
        content_range=headers.get("content-range"),
    )
    return opened_object(got["Body"].get_raw_stream(), told, _failures)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except CosServiceError as error:
        raise error_for(error.get_status_code(), _code(error)) from error
    except CosClientError as error:
        raise BucketError(Trouble.FAILED, _kind(str(error)), passing=True) from error
    except (HTTPError, OSError) as error:
        raise BucketError(Trouble.FAILED, type(error).__name__, passing=True) from error


def _code(error: CosServiceError) -> str:
    """An answer without a body has none."""
    told = error.get_digest_msg()
    return str(told.get("code", "")) if isinstance(told, dict) else ""


def _kind(text: str) -> str:
    """The SDK keeps only the text of what happened, with the address in it."""
    known = {"Read timed out": "ReadTimeout", "timed out": "ConnectTimeout", "redirected": "redirected"}
    return next((kind for words, kind in known.items() if words in text), "ConnectionError")
