"""Volumes: data that lies outside and is mounted into runs."""

import click

from api.cli.fields import Field, Pair, field
from api.cli.session import Group
from api.cli.shapes import VOLUME
from api.cli.verbs import add_create, add_delete, add_list, add_show

_TYPES = click.Choice(["cos", "cfs", "cfs_turbo", "goosefs", "s3", "nfs", "pvc", "local"])

FIELDS: tuple[Field, ...] = (
    field("--type", "type", "What it lies on.", kind=_TYPES),
    field("--source", "source", "Where it lies: bucket=…, region=…, path=/…, by type.", kind=Pair(), is_many=True),
    field("--credential", "credential", "Name of the credential of its bucket."),
)


@click.group(cls=Group)
def volume() -> None:
    """Data that lies outside and is mounted into runs. Never edited: delete and create."""


add_create(volume, VOLUME, FIELDS)
add_list(volume, VOLUME, ["type"])
add_show(volume, VOLUME)
add_delete(volume, VOLUME)
