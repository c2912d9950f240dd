"""The service as a process: listens, prepares, serves until told to stop. `python -m api.main` or `muster serve`."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import uvicorn
import uvloop

from api.app import create_app
from api.errors import from_outside
from api.log_setup import set_up_log
from api.ray_endpoint.websocket import UVICORN_OPTIONS
from api.settings import Settings
from api.texts import Language, say
from api.wiring import Services, prepare, running, wire
from kernel.errors import MusterError, Unavailable
from kernel.loop import Observer

GRACE_S = 5
"""For answers under way when the service is told to stop; streams end by themselves."""


def serve(settings: Settings, observer: Observer = lambda _step: None) -> None:
    """Returns when told to stop by SIGINT or SIGTERM. Raises the MusterError that says why it could not start.

    Tests watch the loops' steps.
    """
    set_up_log(settings)
    try:
        _own_folder(settings)
        with _listener(settings) as listener:
            uvloop.run(_serve(settings, listener, observer))
    except MusterError:
        raise
    except Exception as error:
        known = from_outside(error)
        if known is None:
            raise
        raise known from error


async def _serve(settings: Settings, listener: socket.socket, observer: Observer) -> None:
    services = wire(settings, observer=observer, own_url=_own_url(settings, listener))
    secret = await prepare(services)
    config = uvicorn.Config(
        create_app(services),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        **UVICORN_OPTIONS,
    )
    server = _Server(config)
    _stop_on_signals(server, services)
    _announce(settings, listener, secret)
    async with running(services):
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours are set already; uvicorn's would end the process before the loops have."""
        yield


def _stop_on_signals(server: uvicorn.Server, services: Services) -> None:
    def stop() -> None:
        server.force_exit = server.should_exit  # told twice: at once
        server.should_exit = True
        services.news.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _own_folder(settings: Settings) -> None:
    """It holds tokens, credentials and people's data, so it is nobody else's to read."""
    folder = settings.state_dir
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError("it may not be written to")
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable("STATE_DIR_UNUSABLE", path=str(folder), reason=reason) from error


def _listener(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unavailable("CANNOT_LISTEN", host=settings.host, port=settings.port, reason=reason) from error


def _own_url(settings: Settings, listener: socket.socket) -> str:
    """For whoever is on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _announce(settings: Settings, listener: socket.socket, secret: str | None) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    lines = [f"Muster {version('muster')} on http://{host}:{listener.getsockname()[1]}"]
    if secret is not None and settings.admin_token is None:
        lines.append(f"Admin token, told only now and kept in {settings.admin_token_file}: {secret}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> int:
    try:
        serve(Settings.load())
    except MusterError as error:
        words = say(error.code, error.params, Language.EN)
        sys.stderr.write(f"{words.detail} {words.advice or ''}".rstrip() + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
