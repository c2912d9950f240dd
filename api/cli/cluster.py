"""Ray clusters."""

from typing import Any

import click

from api.cli.fields import MOUNT_FORM, WORKER, Field, Pair, Record, field
from api.cli.session import Group, Session, output_option, pass_session
from api.cli.shapes import CLUSTER, EVENT, QUEUED
from api.cli.verbs import (
    add_create,
    add_delete,
    add_edit,
    add_list,
    add_queue,
    add_show,
    listing_options,
    print_change,
    print_list,
)
from api.client import Json

FIELDS: tuple[Field, ...] = (
    field(
        "--kind",
        "kind",
        "managed: made by Muster. attached: somebody else's.",
        kind=click.Choice(["managed", "attached"]),
    ),
    field("--backend", "backend", "What makes a managed cluster: local or kuberay."),
    field("--image", "image", "Image of the nodes."),
    field("--head", "head", "The head: cpu=2,memory_gib=4.", kind=Record()),
    WORKER,
    field("--resource-package", "resource_package", "Resource package it takes from."),
    field("--resource-group", "resource_group", "Resource group it takes from."),
    field("--ray-address", "address", "Jobs API address of an attached cluster."),
    field("--credential", "credential", "Name of the credential for an attached cluster."),
    field("--mount", "volumes", f"A volume its runs find mounted: {MOUNT_FORM}.", kind=Record(), is_many=True),
    field("--label", "labels", "A label.", kind=Pair(), is_many=True),
    field("--max-runs", "max_runs", "Runs at once at most.", kind=int),
)


@click.group(cls=Group)
def cluster() -> None:
    """Ray clusters."""


def _prepare(_session: Session, body: Json, _dry_run: bool) -> None:
    body.setdefault("kind", "attached" if body.get("address") else "managed")


add_create(cluster, CLUSTER, FIELDS, _prepare)
add_list(cluster, CLUSTER, ["name", "state", "kind", "resource_package", "resource_group", "created_by"])
add_show(cluster, CLUSTER)
add_edit(cluster, CLUSTER, FIELDS)


@cluster.command()
@click.argument("ref", metavar="CLUSTER")
@output_option
@pass_session
def start(session: Session, ref: str) -> None:
    """Start a managed cluster; waiting runs go to it by themselves."""
    print_change(session, CLUSTER, session.muster.clusters.start(ref))


@cluster.command()
@click.argument("ref", metavar="CLUSTER")
@click.option("--force", is_flag=True, help="End the live runs on it first.")
@output_option
@pass_session
def stop(session: Session, ref: str, *, force: bool) -> None:
    """Stop a managed cluster."""
    print_change(session, CLUSTER, session.muster.clusters.stop(ref, force=force))


@cluster.command()
@click.argument("ref", metavar="CLUSTER")
@output_option
@pass_session
def cordon(session: Session, ref: str) -> None:
    """Give a cluster no new runs."""
    print_change(session, CLUSTER, session.muster.clusters.cordon(ref))


@cluster.command()
@click.argument("ref", metavar="CLUSTER")
@output_option
@pass_session
def uncordon(session: Session, ref: str) -> None:
    """Give a cluster new runs again."""
    print_change(session, CLUSTER, session.muster.clusters.uncordon(ref))


@cluster.command()
@click.argument("ref", metavar="CLUSTER")
@click.option("--web", is_flag=True, help="Open it in the browser, too.")
@pass_session
def dashboard(session: Session, ref: str, *, web: bool) -> None:
    """Print a link to a cluster's Ray dashboard: it opens once, within a minute."""
    link = session.address + session.muster.clusters.dashboard(ref)["path"]
    click.echo(link)
    if web:
        click.launch(link)


@cluster.command()
@click.argument("ref", metavar="CLUSTER")
@listing_options
@pass_session
def events(session: Session, ref: str, *, show_all: bool, **query: Any) -> None:
    """List what happened to a cluster."""
    print_list(
        session, EVENT, lambda **page: session.muster.clusters.events(ref, **page), show_all=show_all, query=query
    )


add_queue(cluster, CLUSTER, QUEUED)
add_delete(
    cluster,
    CLUSTER,
    help_text="Stop a managed cluster and delete it; forget an attached one. Refused while runs are live on it.",
    can_force=True,
)
