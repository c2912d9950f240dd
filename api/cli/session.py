"""What one call of `muster` works with: which server, as whom, in which words, printed how.

The shared options stand on the root and, hidden from their help, on every command, so that they hold wherever people
write them.
"""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from api.cli.texts import language_of, say
from api.client.address import is_web_address

if TYPE_CHECKING:
    from api.cli.output import Printer
    from api.client.muster import Muster

LOCAL_ADDRESS = "http://127.0.0.1:8266"


@dataclass(kw_only=True)
class Session:
    given_address: str | None = None
    given_token: str | None = None
    state_dir: str | None = None
    language: str = "en"
    debug: bool = False
    is_plain: bool = False
    output: str = "table"

    @cached_property
    def muster(self) -> "Muster":
        from api.client.muster import Muster  # noqa: PLC0415  httpx costs more than the rest of the start

        return Muster(self.address, self.token, language=self.language)

    @cached_property
    def out(self) -> "Printer":
        from api.cli.output import Printer  # noqa: PLC0415  not needed to print help

        return Printer(format=self.output, colours=self.has_colours(sys.stdout))

    @cached_property
    def address(self) -> str:
        from api.cli.credentials import saved_login  # noqa: PLC0415  not needed to print help

        address = self.given_address
        if address is None:
            address = saved_login().get("address") or LOCAL_ADDRESS
        if not is_web_address(address):
            raise click.BadParameter(
                f"{address!r} is not like https://host:port", param_hint="--address or MUSTER_ADDRESS"
            )
        return address.rstrip("/")

    @cached_property
    def token(self) -> str | None:
        """A kept token goes to no other server than the one it is for."""
        from api.cli.credentials import local_admin_token, saved_login  # noqa: PLC0415  not needed to print help

        token = self.given_token
        if token is not None:
            if not token or not token.isascii() or not token.isprintable():
                told = "a token is printable ASCII" if token else "it is empty"
                raise click.BadParameter(told, param_hint="--token or MUSTER_TOKEN")
            return token
        login = saved_login()
        if login.get("address") == self.address:
            return login.get("token")
        return local_admin_token(self.address, self.state_dir)

    def close(self) -> None:
        if "muster" in vars(self):  # asked for at all
            self.muster.close()

    def has_colours(self, stream: Any) -> bool:
        return not self.is_plain and bool(stream.isatty())

    def say(self, key: str, /, **params: object) -> str:
        return say(self.language, key, **params)

    def tell(self, key: str, /, **params: object) -> None:
        """To people, beside the result: standard error."""
        click.echo(self.say(key, **params), err=True)

    def warn(self, answer: dict[str, Any]) -> None:
        for warning in answer.get("warnings") or ():
            pointer = f" ({warning['pointer']})" if warning.get("pointer") else ""
            click.echo(f"{self.say('warning')}: {warning['code']}: {warning.get('detail') or ''}{pointer}", err=True)


_pass = click.make_pass_decorator(Session, ensure=True)


def pass_session(command: Callable[..., None]) -> Callable[..., None]:
    """Call the command with the session first."""
    return _pass(command)


class Command(click.Command):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(shared_options(hidden=True))


class Group(click.Group):
    command_class = Command
    group_class = type


class _SharedOption(click.Option):
    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Set to nothing is not unset: click would drop it, and the call would go to another server, as another."""
        if isinstance(self.envvar, str):
            return os.environ.get(self.envvar)
        return super().resolve_envvar_value(ctx)


def shared_options(*, hidden: bool) -> Iterable[click.Option]:
    """Environment variables are read at the root only, or they would override what stands before a command."""

    def option(flag: str, field: str, envvar: str | list[str] | None, help_text: str, **traits: Any) -> click.Option:
        return _SharedOption(
            [flag, f"shared_{field}"],  # no command's own parameter is named so
            envvar=None if hidden else envvar,
            show_envvar=not hidden,
            hidden=hidden or not help_text,
            expose_value=False,
            callback=_keep(field),
            help=help_text,
            **traits,
        )

    yield option("--address", "given_address", "MUSTER_ADDRESS", "Address of the server.", metavar="URL")
    yield option("--token", "given_token", "MUSTER_TOKEN", "Token to show it.", metavar="SECRET")
    yield option("--debug", "debug", None, "Say everything about an error.", is_flag=True, is_eager=True)
    yield option("--no-color", "is_plain", None, "No colours, not even on a terminal.", is_flag=True)
    if not hidden:
        yield option("--state-dir", "state_dir", "MUSTER_STATE_DIR", "")
        yield option("--lang", "language", ["LC_ALL", "LC_MESSAGES", "LANG"], "", is_eager=True, type=language_of)
        yield option("--plain", "is_plain", "NO_COLOR", "", type=bool_of_presence)


def bool_of_presence(text: str) -> bool:
    """`NO_COLOR` counts by being set to anything."""
    return text != ""


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml", "name", "jsonl"]),
        default="table",
        show_default=True,
        expose_value=False,
        callback=_keep("output"),
        help="json and yaml are the API's own bodies; jsonl is one item a line; name is what other commands take.",
    )(command)


def _keep(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.find_root().ensure_object(Session), field, value)

    return callback
