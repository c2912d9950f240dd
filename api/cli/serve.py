"""Run the service; the only command that loads it."""

import os
from pathlib import Path

import click

from api.cli.session import Command, Session, pass_session
from api.client.errors import ApiError


@click.command(cls=Command)
@click.option("--host", help="Address to listen on, instead of MUSTER_HOST.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, instead of MUSTER_PORT.")
@click.option("--state-dir", type=click.Path(path_type=Path), help="Folder of its state, instead of MUSTER_STATE_DIR.")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings, instead of MUSTER_CONFIG.")
@pass_session
def serve(session: Session, **given: object) -> None:
    """Run the service in the foreground until it is told to stop.

    Without any settings it keeps everything in one folder, makes Ray clusters on this machine, and listens on loopback.
    """
    for name, value in given.items():
        if value is not None:
            os.environ[f"MUSTER_{name.upper()}"] = str(value)  # settings have one source; an option is a quicker way in
    from api.main import serve as run_service  # noqa: PLC0415  the whole service
    from api.settings import Settings  # noqa: PLC0415
    from api.texts import Language, say  # noqa: PLC0415
    from kernel.errors import MusterError  # noqa: PLC0415

    try:
        run_service(Settings.load())
    except MusterError as error:
        words = say(error.code, error.params, Language(session.language))
        raise ApiError(
            code=error.code, status=error.status, title=words.title, detail=words.detail, advice=words.advice
        ) from error
