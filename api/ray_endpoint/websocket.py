"""How uvicorn must serve the tail of a log, so that Ray's client never takes a restart for the end of the log."""

from collections.abc import Mapping
from typing import Any

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class CutOnShutdown(WebSocketsSansIOProtocol):
    """Any close frame is to Ray's client the end of the log, and exit code 0; only a cut connection is a failure.

    Uvicorn's own way at shutdown is a frame with 1012.
    """

    def shutdown(self) -> None:
        if self.close_sent or not self.handshake_complete:
            super().shutdown()
            return
        self.stop_keepalive()
        self.transport.abort()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True  # uvicorn forgets it after a refusal, and then logs an error of its own


UVICORN_OPTIONS: Mapping[str, Any] = {
    "ws": CutOnShutdown,
    "ws_ping_interval": 20.0,
    # A client whose output is paused answers no pings; closing on it would end its log early with exit code 0.
    "ws_ping_timeout": None,
}
