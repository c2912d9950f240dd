"""COS on loopback, as strict as the real one: every request is checked by its signature before anything else.

Speaks what its SDK sends for objects: put, get with ranges and conditions, parts, list, delete, presigned addresses.
"""

import base64
import hashlib
import hmac
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

SIGNING = ("q-sign-algorithm", "q-ak", "q-sign-time", "q-key-time", "q-header-list", "q-url-param-list", "q-signature")
LEAST_PART_BYTES = 1024 * 1024
clock = time.time


class Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code


@dataclass(slots=True)
class Stored:
    data: bytes
    etag: str = ""
    modified_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.etag = self.etag or f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@dataclass(slots=True)
class Upload:
    key: str
    parts: dict[int, Stored] = field(default_factory=dict)


@dataclass(slots=True)
class CosState:
    """`closed` names buckets nobody may use; `failures` (method, status, code) are answered once each."""

    keys: dict[str, str]
    default_bucket: str
    buckets: dict[str, dict[str, Stored]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    uploads: dict[str, Upload] = field(default_factory=dict)
    failures: list[tuple[str, int, str]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def cos_server(keys: dict[str, str], *buckets: str) -> Iterator[CosState]:
    state = CosState(keys, buckets[0], {name: {} for name in buckets})

    class Handler(CosHandler):
        cos = state

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()


def check_signature(  # noqa: PLR0917 - the parts of a request
    method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], keys: Mapping[str, str], now: float
) -> None:
    """`path` is decoded, names of `headers` are lower-cased. Raises `Refused`."""
    told = dict(parse_qsl(headers.get("authorization", ""), keep_blank_values=True))
    signed = told or {name: query[name] for name in SIGNING if name in query}
    if set(signed) != set(SIGNING) or signed["q-sign-algorithm"] != "sha1":
        raise Refused(403, "AccessDenied")
    if signed["q-ak"] not in keys:
        raise Refused(403, "InvalidAccessKeyId")
    start, _, end = signed["q-key-time"].partition(";")
    if not int(start) <= now <= int(end):
        raise Refused(403, "RequestTimeTooSkewed" if now < int(start) else "AccessDenied")
    pairs = {name.lower(): value for name, value in query.items()}
    params = _joined(signed["q-url-param-list"], {_encoded(name): value for name, value in pairs.items()})
    for host in _hosts(headers["host"]):
        headed = _joined(signed["q-header-list"], {**headers, "host": host})
        text = f"{method.lower()}\n{path}\n{params}\n{headed}\n"
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        sign_key = _hmac(keys[signed["q-ak"]], signed["q-key-time"])
        expected = _hmac(sign_key, f"sha1\n{signed['q-sign-time']}\n{digest}\n")
        if hmac.compare_digest(expected, signed["q-signature"]):
            return
    raise Refused(403, "SignatureDoesNotMatch")


def _hosts(host: str) -> tuple[str, str]:
    """The SDK signs the name alone where it was given an address with a port."""
    return host, host.rpartition(":")[0] or host


def _joined(names: str, values: Mapping[str, str]) -> str:
    listed = [name for name in names.split(";") if name]
    if missing := [name for name in listed if name not in values]:
        raise Refused(403, f"SignatureDoesNotMatch {missing}")
    return "&".join(f"{name}={_encoded(values[name])}" for name in sorted(listed))


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha1).hexdigest()


class CosHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cos: CosState

    def handle_one(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        parts = urlsplit(self.path)
        self.key = unquote(parts.path)[1:]
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.cos.seen.append(f"{self.command} {self.key}")
        try:
            self._check()
            self._fail_if_told()
            self._answer()
        except Refused as refusal:
            self._refuse(refusal)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815 - the library's names

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client may leave when it likes
            super().handle()

    def log_message(self, *_arguments: Any) -> None:
        """In silence."""

    def _check(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        check_signature(self.command, f"/{self.key}", self.query, headers, self.cos.keys, clock())
        key_id = re.search(r"q-ak=([^&]*)", headers.get("authorization", ""))
        token = self.cos.tokens.get(key_id[1] if key_id else "")
        if token is not None and headers.get("x-cos-security-token") != token:
            raise Refused(403, "InvalidAccessKeyId")
        name = re.match(r"(.+)\.cos\.[a-z0-9-]+\.myqcloud\.com$", headers["host"])
        self.bucket = name[1] if name else self.cos.default_bucket
        if self.bucket not in self.cos.buckets:
            raise Refused(404, "NoSuchBucket")
        if self.bucket in self.cos.closed:
            raise Refused(403, "AccessDenied")
        digest = base64.b64encode(hashlib.md5(self.body, usedforsecurity=False).digest()).decode()
        if headers.get("content-md5", digest) != digest:
            raise Refused(400, "BadDigest")

    def _fail_if_told(self) -> None:
        for failure in self.cos.failures:
            if failure[0] == self.command:
                self.cos.failures.remove(failure)
                raise Refused(*failure[1:])

    def _answer(self) -> None:
        match self.command, bool(self.key):
            case "GET" | "HEAD", False:
                self._list()
            case "GET" | "HEAD", True:
                self._get()
            case "PUT", True:
                self._put()
            case "POST", True:
                self._post()
            case "DELETE", True:
                self._delete()
            case _:
                raise Refused(405, "MethodNotAllowed")

    @property
    def _objects(self) -> dict[str, Stored]:
        return self.cos.buckets[self.bucket]

    def _list(self) -> None:
        prefix, marker = self.query.get("prefix", ""), self.query.get("marker", "")
        most = min(int(self.query.get("max-keys", 1000)), 1000)
        found = [key for key in sorted(self._objects) if key.startswith(prefix) and key > marker]
        entries = "".join(
            f"<Contents><Key>{escape(quote(key))}</Key><LastModified>{_iso(self._objects[key])}</LastModified>"
            f"<ETag>{escape(self._objects[key].etag)}</ETag><Size>{len(self._objects[key].data)}</Size></Contents>"
            for key in found[:most]
        )
        more = str(len(found) > most).lower()
        self._send(200, f"<ListBucketResult>{entries}<IsTruncated>{more}</IsTruncated></ListBucketResult>".encode())

    def _get(self) -> None:
        stored = self._objects.get(self.key)
        if stored is None:
            raise Refused(404, "NoSuchKey")
        if self.headers.get("If-Match", stored.etag) != stored.etag:
            raise Refused(412, "PreconditionFailed")
        size = len(stored.data)
        about = {"ETag": stored.etag, "Content-Type": "application/octet-stream"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, stored.data, about)
            return
        start, end = int(wanted[1]), min(int(wanted[2] or size), size - 1)
        if start >= size:
            raise Refused(416, "InvalidRange")
        self._send(206, stored.data[start : end + 1], about | {"Content-Range": f"bytes {start}-{end}/{size}"})

    def _put(self) -> None:
        stored = Stored(self.body)
        if "uploadId" in self.query:
            self._upload().parts[int(self.query["partNumber"])] = stored
        else:
            self._objects[self.key] = stored
        self._send(200, b"", {"ETag": stored.etag})

    def _post(self) -> None:
        if "uploads" in self.query:
            upload_id = hashlib.sha1(f"{self.key} {time.time_ns()}".encode(), usedforsecurity=False).hexdigest()
            self.cos.uploads[upload_id] = Upload(self.key)
            self._send(200, _xml("InitiateMultipartUploadResult", Key=self.key, UploadId=upload_id))
            return
        upload = self._upload()
        told = re.findall(rb"<PartNumber>(\d+)</PartNumber>\s*<ETag>([^<]*)</ETag>", self.body)
        named = [(int(number), etag.decode().replace("&quot;", '"')) for number, etag in told]
        if named != [(number, upload.parts[number].etag) for number in sorted(upload.parts)]:
            raise Refused(400, "InvalidPart")
        parts = [upload.parts[number].data for number, _ in named]
        if any(len(part) < LEAST_PART_BYTES for part in parts[:-1]):
            raise Refused(400, "EntityTooSmall")
        whole = b"".join(parts)
        digest = hashlib.md5(whole, usedforsecurity=False).hexdigest()
        stored = self._objects[self.key] = Stored(whole, f'"{digest}-{len(parts)}"')
        del self.cos.uploads[self.query["uploadId"]]
        self._send(200, _xml("CompleteMultipartUploadResult", Key=self.key, ETag=stored.etag))

    def _delete(self) -> None:
        if "uploadId" in self.query:
            self._upload()
            del self.cos.uploads[self.query["uploadId"]]
        else:
            self._objects.pop(self.key, None)
        self._send(204, b"")

    def _upload(self) -> Upload:
        upload = self.cos.uploads.get(self.query["uploadId"])
        if upload is None or upload.key != self.key:
            raise Refused(404, "NoSuchUpload")
        return upload

    def _refuse(self, refusal: Refused) -> None:
        fields = {
            "Code": refusal.code,
            "Message": "refused",
            "Resource": f"/{self.key}",
            "RequestId": "r",
            "TraceId": "t",
        }
        place = {"Location": self.path} if refusal.status in {301, 302, 307} else {}
        self._send(refusal.status, _xml("Error", **fields), {"Content-Type": "application/xml"} | place)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("x-cos-request-id", "r")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _iso(stored: Stored) -> str:
    return stored.modified_at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _xml(name: str, **fields: str) -> bytes:
    return f"<{name}>{''.join(f'<{one}>{escape(text)}</{one}>' for one, text in fields.items())}</{name}>".encode()
