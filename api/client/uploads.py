"""Large files by the tus protocol: after a cut, or in another call altogether, sending goes on where it stopped.

An unfinished upload is found again by the file's SHA-256: nothing needs to be remembered on this side.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from api.client import Json
from api.client.errors import ApiError, ServerUnreachable
from api.client.http import RETRY_DELAYS_S
from api.client.resource import Resource

_PIECE = "application/offset+octet-stream"
_TUS = {"Tus-Resumable": "1.0.0"}
_BLOCK_BYTES = 2**18
_CHECK_S = 600
"""The answer to the last piece comes when the file has been checked and stored."""

Report = Callable[[int], None]
"""Is told how many bytes the server has, or is being sent."""


class Uploads(Resource):
    path = "/uploads"

    def send(self, file: Path, name: str, report: Report) -> str:
        """The id of the package that the file is now, or was before."""
        announced = {"Upload-Length": str(file.stat().st_size), "Upload-Metadata": f"filename {_base64(name)}"}
        self._refuse_early(announced)
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            known = self._http.get("/packages", sha256=sha256, limit=1)["items"]
            if known:
                return str(known[0]["id"])
            announced["Upload-Metadata"] += f",sha256 {_base64(sha256)}"
            begun = self.page(sha256=sha256, limit=1)["items"]
            upload = begun[0] if begun else self._http.send("POST", self.path, _TUS | announced).body
            return self._send_rest(upload, content, report)

    def delete(self, ref: str, *, force: bool = False) -> Json:
        del force
        return self._http.send("DELETE", self.at(ref), _TUS).body

    def _refuse_early(self, announced: dict[str, str]) -> None:
        """Before a long reading."""
        try:
            self._http.send("POST", self.path, _TUS | announced, params={"dry_run": True})
        except ApiError as error:
            if error.code != "UPLOADS_TOO_MANY":  # this file may be one of them
                raise

    def _send_rest(self, upload: Json, content: BinaryIO, report: Report) -> str:
        """As long as some of it comes through, it goes on."""
        delays = iter(RETRY_DELAYS_S)
        while not upload["package"]:
            failure = self._try_rest(upload, content, report)
            if failure:
                delay_s = next(delays, None)
                if delay_s is None:
                    raise failure
                time.sleep(delay_s)  # the server, too, must take notice of a cut
            before, upload = upload, self.get(upload["id"])
            if upload["offset_bytes"] > before["offset_bytes"]:
                delays = iter(RETRY_DELAYS_S)
        return str(upload["package"])

    def _try_rest(self, upload: Json, content: BinaryIO, report: Report) -> ApiError | ServerUnreachable | None:
        offset, size = upload["offset_bytes"], upload["size_bytes"]
        headers = _TUS | {"Upload-Offset": str(offset), "Content-Length": str(size - offset), "Content-Type": _PIECE}
        try:
            blocks = _blocks(content, offset, report)
            self._http.send("PATCH", self.at(upload["id"]), headers, content=blocks, silence_s=_CHECK_S)
        except ServerUnreachable as error:
            return error
        except ApiError as error:
            if error.code != "UPLOAD_OFFSET_WRONG" and (not error.is_passing or error.code == "DISK_FULL"):
                raise
            return error
        return None


def _blocks(content: BinaryIO, offset: int, report: Report) -> Iterator[bytes]:
    content.seek(offset)
    while block := content.read(_BLOCK_BYTES):
        report(offset)
        offset += len(block)
        yield block
    report(offset)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
