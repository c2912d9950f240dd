"""Where the command line keeps a token, and where it finds the one of a server on this machine."""

import json
import os
import tempfile
from pathlib import Path

import click
from platformdirs import user_config_path, user_state_path

from api.client.address import is_loopback


def login_file() -> Path:
    return user_config_path("muster") / "login.json"


def saved_login() -> dict[str, str]:
    file = login_file()
    try:
        login = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise click.UsageError(f"{file} is not what `muster login` wrote; remove it and log in again") from error
    return login if isinstance(login, dict) else {}


def save_login(address: str, token: str) -> Path:
    """Readable by the user only, at every moment."""
    file = login_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=file.parent, prefix=".login-")  # made with mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        json.dump({"address": address, "token": token}, out)
    Path(unfinished).replace(file)
    return file


def local_admin_token(address: str, state_dir: str | None) -> str | None:
    """The token that `muster serve` left for this machine; shown to nobody elsewhere."""
    if not is_loopback(address):
        return None
    file = Path(state_dir) if state_dir else user_state_path("muster")
    try:
        return (file / "admin-token").read_text("utf-8").strip() or None
    except (FileNotFoundError, PermissionError):
        return None
