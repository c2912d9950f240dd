"""Loaded by `ray start` itself (RAY_START_HOOK): Ray Client has no switch on the command line, and is always on."""

from typing import Any


def without_ray_client(parameters: Any, is_head: bool) -> None:  # noqa: FBT001 - the signature is Ray's
    del is_head
    parameters.ray_client_server_port = None
