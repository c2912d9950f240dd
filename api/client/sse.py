"""Server-sent events out of a byte stream."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEvent:
    name: str
    data: str
    id: str | None = None


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent | None]:
    """Events in order; None for a comment, which is how a server says that it is still there."""
    name, event_id, data = "message", None, list[str]()
    for line in _lines(chunks):
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield ServerEvent(name=name, data="\n".join(data), id=event_id)
            name, data = "message", []
        elif not key:
            yield None
        elif key == "event":
            name = value
        elif key == "data":
            data.append(value)
        elif key == "id":
            event_id = value


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Line by line: the `iter_lines` of httpx also splits at U+2028 and its like, which may stand inside JSON."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
