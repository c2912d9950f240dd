"""Uploads on their way (docs/decisions/0016)."""

import base64
import binascii
import re
from datetime import datetime

from api.schemas.base import Resource
from kernel.errors import Malformed
from runtime_envs.model import NewUpload, Upload


class UploadOut(Resource):
    file_name: str
    size_bytes: int
    offset_bytes: int
    """What has come: the next piece begins here."""
    sha256: str | None
    expires_at: datetime
    package: str | None
    """Once all has come and been checked."""

    @classmethod
    def of(cls, upload: Upload) -> "UploadOut":
        return cls.model_validate(upload, from_attributes=True)


def new_upload(length: str | None, metadata: str | None) -> NewUpload:
    """From the headers of the protocol: `Upload-Length`, and `Upload-Metadata` with `filename` and `sha256`."""
    told = _metadata(metadata or "")
    sha256 = told.get("sha256")
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise Malformed("MALFORMED_REQUEST", reason="sha256 in Upload-Metadata is not 64 hexadecimal digits")
    return NewUpload(file_name=told.get("filename"), size_bytes=bytes_of(length, "Upload-Length"), sha256=sha256)


def bytes_of(value: str | None, header: str) -> int:
    if value is None or not re.fullmatch(r"[0-9]{1,15}", value):
        raise Malformed("MALFORMED_REQUEST", reason=f"{header} is not a number of bytes")
    return int(value)


def _metadata(header: str) -> dict[str, str]:
    """Pairs of a key and its value in base64, commas between them."""
    told: dict[str, str] = {}
    for pair in filter(None, map(str.strip, header.split(","))):
        key, _, value = pair.partition(" ")
        try:
            told[key] = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise Malformed("MALFORMED_REQUEST", reason=f"{key[:80]} in Upload-Metadata is not base64") from error
    return told
