"""The part `file` of a multipart body as a stream, so that a package is written once, where it is checked."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from kernel.errors import InvalidInput, Malformed, pointer_to

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


@dataclass(frozen=True, slots=True)
class UploadedFile:
    name: str | None
    chunks: AsyncIterator[bytes]


async def uploaded_file(request: Request) -> UploadedFile:
    """Read up to where the file begins; the rest is read as `chunks` is."""
    media_type, options = parse_options_header(request.headers.get("content-type"))
    if media_type != b"multipart/form-data" or b"boundary" not in options:
        raise InvalidInput("FIELD_REQUIRED", pointer="/file", field="file")
    form = _Form(options[b"boundary"])
    body = request.stream()
    while not form.file_began:
        if not await form.feed(body):
            raise InvalidInput("FIELD_REQUIRED", pointer="/file", field="file")
    return UploadedFile(form.file_name, _chunks(form, body))


async def _chunks(form: "_Form", body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    more = True
    while more:
        while form.data:
            yield form.data.popleft()
        more = await form.feed(body)
    if not form.complete:
        raise Malformed("MALFORMED_MULTIPART", reason="it ends before its last boundary")


@dataclass(slots=True)
class _Form:
    """What the parser has told: nothing but one file may be in it."""

    boundary: bytes
    file_began: bool = False
    file_name: str | None = None
    complete: bool = False
    data: deque[bytes] = field(default_factory=deque)
    _disposition: bytearray = field(default_factory=bytearray)
    _header: bytearray = field(default_factory=bytearray)
    _parser: MultipartParser = field(init=False)

    def __post_init__(self) -> None:
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_header,
            "on_header_value": self._add_value,
            "on_header_end": self._header.clear,
            "on_headers_finished": self._finish_headers,
            "on_part_data": self._add_data,
            "on_end": self._end,
        }
        try:
            self._parser = MultipartParser(self.boundary, callbacks)
        except FormParserError as error:
            raise Malformed("MALFORMED_MULTIPART", reason=str(error)) from error

    async def feed(self, body: AsyncIterator[bytes]) -> bool:
        """One piece of the body; False at its end."""
        chunk = await anext(body, None)
        if chunk is None:
            return False
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise Malformed("MALFORMED_MULTIPART", reason=str(error)) from error
        return True

    def _begin_part(self) -> None:
        self._disposition.clear()

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition += data[start:end]

    def _finish_headers(self) -> None:
        _, options = parse_options_header(bytes(self._disposition))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name != "file" or self.file_began:
            raise InvalidInput("UNKNOWN_FIELD", pointer=pointer_to(name), field=name)
        self.file_began = True
        if b"filename" in options:
            self.file_name = options[b"filename"].decode("utf-8", "replace")

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self.data.append(data[start:end])

    def _end(self) -> None:
        self.complete = True
