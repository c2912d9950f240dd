"""All settings of the service: environment variables `MUSTER_…` over a TOML file over defaults; read once."""

import os
import re
import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, MultiFernet
from platformdirs import user_state_path
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from cluster_groups.model.group import LEASE_TTL_S
from kernel.errors import InvalidInput
from runtime_envs.addresses import AllowedHosts

PREFIX = "MUSTER_"
NO_SETTINGS = ("CONFIG", "ADDRESS", "TOKEN")
"""Names behind the prefix that mean something else: where the file is, and what the command line reads."""
TEST_PREFIX = f"{PREFIX}TEST_"
LEAST_SECRET_LENGTH = 16
LEAST_SECRET_VARIETY = 8
MAX_URL = 200


def _absolute(value: Path) -> Path:
    return value.expanduser().absolute()


def _ray_target(value: str | None) -> str | None:
    if value is not None and value.split("/")[0] not in {"clusters", "groups", "jobs"}:
        raise ValueError("must be clusters/<name>, groups/<name> or jobs/<name>")
    return value


def _http_url(value: str | None) -> str | None:
    """Without a slash at its end: paths are put behind it."""
    if value is None:
        return None
    parts = urlsplit(value)
    plain = f"{parts.scheme}://{parts.netloc}{parts.path}"
    _ = parts.port  # its own ValueError says what is wrong with it
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or plain != value:
        raise ValueError("must be http://host or https://host, with a port and a path at most")
    return value.rstrip("/")


def _words(value: object) -> object:
    return tuple(value.split()) if isinstance(value, str) else value


def _http_urls(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(None, map(_http_url, values)))


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    AllowedHosts.of(values)  # its own ValueError says which is none
    return values


def _roots(values: tuple[Path, ...]) -> tuple[Path, ...]:
    for value in values:
        if not value.is_absolute() or ".." in value.parts:
            raise ValueError("must be absolute paths without ..")
    return values


def _bucket(value: str | None, info: ValidationInfo) -> str | None:
    """With what it needs, which is declared before it."""
    if value is None:
        return None
    if not re.fullmatch(r"(s3|cos)://[a-z0-9][a-z0-9.-]{1,62}(/[a-z0-9_-][a-z0-9._-]*)*/?", value):
        raise ValueError("must be s3://bucket/prefix or cos://name-appid/prefix, in lower case")
    has_keys = info.data.get("blob_key_id") and info.data.get("blob_secret_key")
    if value.startswith("cos:") and not (has_keys and info.data.get("blob_region")):
        raise ValueError("cos:// needs blob_region, blob_key_id and blob_secret_key as well")
    return value


def _known_database(value: SecretStr) -> SecretStr:
    if value.get_secret_value().split(":")[0] not in {"", "sqlite", "postgresql"}:
        raise ValueError("must begin with sqlite:/// or postgresql://")
    return value


def _fernet_keys(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        MultiFernet(map(Fernet, value.get_secret_value().split()))  # its own ValueError says what a key looks like
    return value


def _hard_to_guess(value: SecretStr | None) -> SecretStr | None:
    """A token is all that stands between a stranger and every node."""
    if value is None:
        return None
    secret = value.get_secret_value()
    is_plain = secret.isascii() and secret.isprintable() and " " not in secret  # what a header can carry
    if not is_plain or len(secret) < LEAST_SECRET_LENGTH or len(set(secret)) < LEAST_SECRET_VARIETY:
        allowed = {"length": LEAST_SECRET_LENGTH, "variety": LEAST_SECRET_VARIETY}
        raise PydanticCustomError("SECRET_TOO_WEAK", "too easy to guess", allowed)
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
    callback_url: Annotated[str | None, AfterValidator(_http_url)] = Field(
        default=None,
        max_length=MAX_URL,
        description="Address under which the heads of clusters reach this service, `http://host:8266` say. "
        "Without it no run that may be lost is started again on another cluster, unless its job is `retry_safe`.",
    )
    admin_token: Annotated[SecretStr | None, AfterValidator(_hard_to_guess)] = Field(
        default=None,
        description="Secret of the token `admin`, "
        f"at least {LEAST_SECRET_LENGTH} characters; by default one is made on the first start and printed once.",
    )
    credential_key: Annotated[SecretStr | None, AfterValidator(_fernet_keys)] = Field(
        default=None,
        description="Fernet key that credentials are sealed with, by default one that is made on the first start; "
        "behind a blank older keys, whose credentials are sealed anew at the next start.",
    )
    blob_region: str | None = Field(
        default=None, pattern=r"^[a-z0-9-]{1,40}$", description="Region of that bucket, `ap-guangzhou` say."
    )
    blob_endpoint: Annotated[str | None, AfterValidator(_http_url)] = Field(
        default=None, max_length=MAX_URL, description="Its server, where that is not the cloud's own for the region."
    )
    blob_key_id: SecretStr | None = Field(
        default=None,
        description="Key id (COS: SecretId) for that bucket; for S3 by default what boto3 finds by itself.",
    )
    blob_secret_key: SecretStr | None = Field(default=None, description="The secret that belongs to it.")
    blob_store: Annotated[str | None, AfterValidator(_bucket)] = Field(
        default=None,
        description="Bucket for packages and logs, `s3://bucket/prefix` or `cos://name-appid/prefix`; "
        "by default the folder `blobs` there.",
    )
    object_endpoints: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), AfterValidator(_http_urls)] = Field(
        default=(),
        description="Servers packages may be fetched from besides those of AWS and Tencent Cloud, as "
        "`https://host:port`, blanks between them.",
    )
    node_fetch_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = Field(
        default=(),
        description="Hosts, buckets and `*.domains` that jobs may make their nodes fetch from (`py_modules`, addresses "
        "of packages and of package indexes), blanks between them; by default all but a node's own addresses.",
    )
    image_uris: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = Field(
        default=(),
        description="Patterns of images that jobs may name in `image_uri` of their runtime_env, as "
        "`registry.example.org/team/*`, blanks between them; by default none. The nodes need podman.",
    )
    fetch_allow: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words), AfterValidator(_hosts)] = Field(
        default=(),
        description="Hosts and networks that volumes may lie on and jobs may fetch from although their addresses are "
        "loopback, link-local or IPv6 unique-local, as `host` or `10.0.0.0/8`, blanks between them.",
    )
    local_volume_roots: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_words), AfterValidator(_roots)] = Field(
        default=(),
        description="Folders that volumes of type `local` may lie in, blanks between them; by default any while the "
        "service listens on loopback only, and else none.",
    )
    max_cos_package_bytes: int = Field(
        default=2 * 2**30,
        ge=2**20,
        description="Bytes a package from object storage (COS or S3) may have.",
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
        default=LEASE_TTL_S,
        ge=30,
        description="Seconds a run that may be started again on another cluster goes on without hearing from Muster. "
        "No other run depends on it.",
    )
    retry_backoff_min_s: float = Field(
        default=60,
        ge=0,
        allow_inf_nan=False,
        description="Least of the random seconds before a run is tried again that failed or found no places.",
    )
    retry_backoff_max_s: float = Field(
        default=900, ge=0, allow_inf_nan=False, description="Most of the same; never less than the least."
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
    def is_loopback_only(self) -> bool:
        """Nobody but this machine's users can reach the service."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

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
        """From `MUSTER_CONFIG` or `<state_dir>/muster.toml`, and the environment. Raises InvalidInput."""
        _refuse_unknown_variables(cls.model_fields)
        file = _config_file()
        values = _read(file)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            in_environment = f"{PREFIX}{name.upper()}" in os.environ
            source = f"{PREFIX}{name.upper()}" if in_environment else f"{file}, {name}"
            if first["type"] == "extra_forbidden":
                raise _unknown(source, name, cls.model_fields) from None
            if first["type"].isupper():  # a code of ours
                raise InvalidInput(first["type"], pointer=f"/{name}", source=source, **first["ctx"]) from None
            raise InvalidInput(
                "INVALID_SETTING", pointer=f"/{name}", source=source, reason=first["msg"].removeprefix("Value error, ")
            ) from None


def _refuse_unknown_variables(settings: Iterable[str]) -> None:
    """A misspelt setting that is passed over in silence is a service that does not do what its owner believes."""
    known = [PREFIX + name.upper() for name in (*settings, *NO_SETTINGS)]
    for name in sorted(os.environ):
        told = name.upper()
        if told.startswith(PREFIX) and told not in known and not told.startswith(TEST_PREFIX):
            raise _unknown(name, told, known)


def _unknown(source: str, name: str, known: Iterable[str]) -> InvalidInput:
    (nearest,) = get_close_matches(name, known, n=1, cutoff=0)
    return InvalidInput("UNKNOWN_SETTING", source=source, nearest=nearest)


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
