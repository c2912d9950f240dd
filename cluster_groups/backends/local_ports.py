"""Ports on loopback for what cannot take a port of the kernel's choice and tell us which."""

import secrets
import socket
from collections.abc import Collection

from kernel.errors import Unavailable


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: closing connections do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(ports: range, taken: Collection[int]) -> int:
    """From a random place on: services that start clusters at the same moment would all find the same first one."""
    start = secrets.randbelow(len(ports))
    in_turn: list[int] = [*ports[start:], *ports[:start]]
    port = next((one for one in in_turn if one not in taken and is_free(one)), None)
    if port is None:
        raise Unavailable("NO_FREE_PORT", first=ports.start, last=ports.stop - 1)
    return port
