"""All settings of the service: environment variables `MUSTER_…` over a TOML file over defaults; read once."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from cryptography.fernet import Fernet
from platformdirs import user_state_path
from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from kernel.errors import InvalidInput

PREFIX = "MUSTER_"


def _absolute(value: Path) -> Path:
    return value.expanduser().absolute()


def _ray_target(value: str | None) -> str | None:
    if value is not None and value.split("/")[0] not in {"clusters", "groups", "jobs"}:
        raise ValueError("must be clusters/<name>, groups/<name> or jobs/<name>")
    return value


def _known_database(value: SecretStr) -> SecretStr:
    if value.get_secret_value().split(":")[0] not in {"", "sqlite", "postgresql"}:
        raise ValueError("must begin with sqlite:/// or postgresql://")
    return value


def _fernet_key(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        Fernet(value.get_secret_value())  # its own ValueError says what a key looks like
    return value


class Settings(BaseSettings):
    """Names and meaning are fixed by api.md §12; `docs/reference/settings.md` is made from the descriptions."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    state_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=lambda: user_state_path("muster"),
        description="Folder of all the service keeps by itself: the SQLite database, packages, logs, local clusters.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on. Anything but loopback lets others in.")
    port: int = Field(default=8266, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    database_url: Annotated[SecretStr, AfterValidator(_known_database)] = Field(
        default=SecretStr(""),
        description="`postgresql://user:password@host/name`, `sqlite:///path`; by default `muster.db` there.",
    )
    callback_url: str | None = Field(
        default=None,
        description="Address under which the nodes of clusters reach this service, if they can. No effect yet.",
    )
    admin_token: SecretStr | None = Field(
        default=None,
        description="Secret of the token `admin`; by default one is made on the first start and printed once.",
    )
    credential_key: Annotated[SecretStr | None, AfterValidator(_fernet_key)] = Field(
        default=None,
        description="Fernet key that credentials are sealed with; by default one is made on the first start.",
    )
    ray_default_target: Annotated[str | None, AfterValidator(_ray_target)] = Field(
        default=None,
        description="Where `/ray` sends what is submitted to it: `clusters/<name>`, `groups/<name>` or `jobs/<name>`; "
        "by default an on-demand cluster in the resource group `default`.",
    )
    run_retention_days: int = Field(default=90, ge=1, description="Days an ended run is kept.")
    log_retention_days: int = Field(default=30, ge=1, description="Days the logs of an ended run are kept.")
    max_log_bytes: int = Field(
        default=2**30, ge=2**16, description="Bytes kept of each log; of a longer one its first and its last half."
    )
    max_unpacked_bytes: int = Field(
        default=2 * 2**30, ge=2**20, description="Bytes an uploaded package may have when unpacked."
    )
    lease_ttl_s: int = Field(
        default=600,
        ge=30,
        description="Seconds a run that may move to another cluster goes on without hearing from Muster. "
        "No effect yet.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least weight of what the service writes to its own log."
    )
    log_format: Literal["text", "json"] = Field(default="text", description="Form of the service's own log.")

    @property
    def database(self) -> str:
        """The URL of the database, the default filled in."""
        return self.database_url.get_secret_value() or f"sqlite:///{self.state_dir / 'muster.db'}"

    @property
    def admin_token_file(self) -> Path:
        """Where the local command line finds the first admin token."""
        return self.state_dir / "admin-token"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over what the file says (which comes in as init arguments)."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings

    @classmethod
    def load(cls) -> Self:
        """From `MUSTER_CONFIG` or `<state_dir>/muster.toml`, and the environment. Raises `INVALID_SETTING`."""
        file = _config_file()
        values = _read(file)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            in_environment = f"{PREFIX}{name.upper()}" in os.environ
            source = f"{PREFIX}{name.upper()}" if in_environment else f"{file}, {name}"
            reason = "there is no such setting" if first["type"] == "extra_forbidden" else first["msg"]
            raise InvalidInput("INVALID_SETTING", pointer=f"/{name}", source=source, reason=reason) from None


def _config_file() -> Path:
    named = os.environ.get(f"{PREFIX}CONFIG")
    if named:
        return Path(named)
    state_dir = os.environ.get(f"{PREFIX}STATE_DIR")
    return (Path(state_dir) if state_dir else user_state_path("muster")) / "muster.toml"


def _read(file: Path) -> dict[str, Any]:
    try:
        return {name.lower(): value for name, value in tomllib.loads(file.read_text("utf-8")).items()}
    except (FileNotFoundError, NotADirectoryError):
        if f"{PREFIX}CONFIG" not in os.environ:
            return {}
        raise InvalidInput("INVALID_SETTING", source=str(file), reason="there is no such file") from None
    except (OSError, ValueError) as error:  # unreadable, not UTF-8, not TOML
        raise InvalidInput("INVALID_SETTING", source=str(file), reason=str(error)) from error
