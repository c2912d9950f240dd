"""Secrets this installation keeps on its own disk, readable by its owner only."""

import os
from pathlib import Path

from cryptography.fernet import Fernet, MultiFernet

from api.settings import Settings
from kernel.errors import InvalidInput


def credential_keys(settings: Settings) -> tuple[bytes, ...]:
    """The keys credentials are sealed with, the newest first: the setting, or a file made at the first start."""
    if settings.credential_key is not None:
        return tuple(settings.credential_key.get_secret_value().encode().split())
    file = settings.state_dir / "credential-key"
    if not file.exists():
        write_secret(file, Fernet.generate_key().decode())
    keys = tuple(file.read_bytes().split())
    try:
        MultiFernet([Fernet(key) for key in keys])
    except ValueError as error:
        raise InvalidInput("INVALID_SETTING", source=str(file), reason=str(error)) from None
    return keys


def write_secret(file: Path, secret: str) -> None:
    """Readable by its owner only, from the first moment on."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(f"{secret}\n")
    new.replace(file)
