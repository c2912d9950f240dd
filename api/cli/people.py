"""Tokens, and who did what."""

import click

from api.cli.fields import Field, field
from api.cli.session import Group
from api.cli.shapes import AUDIT, TOKEN
from api.cli.verbs import add_create, add_delete, add_list, print_secret

FIELDS: tuple[Field, ...] = (
    field("--user", "user", "Whose it is."),
    field("--role", "role", "What it may do.", kind=click.Choice(["viewer", "submitter", "operator", "admin"])),
    field("--resource-package", "resource_packages", "A resource package it may use; * for all.", is_many=True),
    field("--expires-at", "expires_at", "When it ends, like 2030-01-31T00:00:00Z."),
)


@click.group(cls=Group)
def token() -> None:
    """Tokens of people and programs."""


@click.group(cls=Group)
def audit() -> None:
    """Who did what."""


add_create(token, TOKEN, FIELDS, present=print_secret)
add_list(token, TOKEN)
add_delete(token, TOKEN)
add_list(audit, AUDIT, ["actor", "action", "target_type", "target"])
