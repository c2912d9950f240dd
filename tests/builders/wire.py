"""A network that can be cut: what is sent meanwhile stays on its way, and arrives when the cut is over."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_BLOCK_BYTES = 16 * 1024


class Wire:
    """TCP to the port `to`. Threads, so that it goes on while a test waits for a command."""

    def __init__(self) -> None:
        self.to = 0
        self._held: tuple[bytes, ...] = ()
        self._changed = threading.Condition()
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self, *marks: str) -> None:
        """For connections whose first line has one of the marks; without any: for all."""
        self._hold(tuple(mark.encode() for mark in marks) or (b"",))

    def mend(self) -> None:
        self._hold(())

    def close(self) -> None:
        self._is_closed = True
        self.mend()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _hold(self, marks: tuple[bytes, ...]) -> None:
        with self._changed:
            self._held = marks
            self._changed.notify_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            block = near.recv(_BLOCK_BYTES)
            line = block.partition(b"\r\n")[0]
            self._wait_for(line)
            with socket.create_connection(("127.0.0.1", self.to)) as far:
                far.sendall(block)
                back = threading.Thread(target=self._copy, args=(far, near, line), daemon=True)
                back.start()
                self._copy(near, far, line)
                back.join()

    def _copy(self, source: socket.socket, sink: socket.socket, line: bytes) -> None:
        with suppress(OSError):
            while block := source.recv(_BLOCK_BYTES):
                self._wait_for(line)
                sink.sendall(block)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _wait_for(self, line: bytes) -> None:
        """Until whoever began with this line is let through."""
        with self._changed:
            self._changed.wait_for(lambda: not any(mark in line for mark in self._held))
        if self._is_closed:
            raise ConnectionAbortedError


@contextmanager
def wire() -> Iterator[Wire]:
    made = Wire()
    try:
        yield made
    finally:
        made.close()
