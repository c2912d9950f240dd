"""Credentials: secrets handed over once, referred to by name, never shown again."""

import sys

import click

from api.cli.fields import Field, field
from api.cli.session import Group, Session
from api.cli.shapes import CREDENTIAL
from api.cli.verbs import add_create, add_delete, add_list, add_show
from api.client import Json

FIELDS: tuple[Field, ...] = (field("--type", "type", "What it opens.", kind=click.Choice(["ray_token"])),)


@click.group(cls=Group)
def credential() -> None:
    """Secrets that clusters refer to by name; a token is asked for, or read from standard input."""


def _ask(session: Session, body: Json, dry_run: bool) -> None:
    """A secret among the options would stay in the shell's history."""
    del session, dry_run
    body.setdefault("type", "ray_token")
    if "data" in body:
        return
    is_terminal = sys.stdin.isatty()
    token = click.prompt("Token", hide_input=True, err=True) if is_terminal else sys.stdin.readline()
    body["data"] = {"token": token.strip()}


add_create(credential, CREDENTIAL, FIELDS, prepare=_ask)
add_list(credential, CREDENTIAL)
add_show(credential, CREDENTIAL)
add_delete(credential, CREDENTIAL)
