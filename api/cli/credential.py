"""Credentials: secrets handed over once, referred to by name, never shown again."""

import sys

import click

from api.cli.fields import Field, field
from api.cli.session import Group, Session, output_option, pass_session
from api.cli.shapes import CREDENTIAL
from api.cli.verbs import add_create, add_delete, add_list, add_show
from api.client import Json

ASKED = {
    "ray_token": ("token",),
    "cos": ("secret_id", "secret_key"),
    "s3": ("access_key_id", "secret_access_key"),
    "registry": ("server", "username", "password"),
}
"""What each type holds, in the order it is asked for."""
FIELDS: tuple[Field, ...] = (field("--type", "type", "What it opens.", kind=click.Choice(list(ASKED))),)


@click.group(cls=Group)
def credential() -> None:
    """Secrets that others refer to by name; asked for, or read from standard input, one a line."""


@credential.command()
@CREDENTIAL.argument
@output_option
@pass_session
def edit(session: Session, ref: str) -> None:
    """Give it other secrets, asked for or read from standard input; whoever refers to it has them from then on."""
    kind = session.muster.credentials.get(ref)["type"]
    changed = session.muster.credentials.edit(ref, {"data": _secrets(kind)})
    session.out.record(changed, CREDENTIAL.columns, CREDENTIAL.key)


def _ask(session: Session, body: Json, dry_run: bool) -> None:
    """A secret among the options would stay in the shell's history."""
    del session, dry_run
    body.setdefault("type", "ray_token")
    if "data" in body:
        return
    body["data"] = _secrets(body["type"])


def _secrets(kind: str) -> dict[str, str]:
    return {name: _secret(name) for name in ASKED.get(kind, ())}


def _secret(name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    answer: str = click.prompt(name.replace("_", " ").capitalize(), hide_input=True, err=True)
    return answer.strip()


add_create(credential, CREDENTIAL, FIELDS, prepare=_ask)
add_list(credential, CREDENTIAL)
add_show(credential, CREDENTIAL)
add_delete(credential, CREDENTIAL)
